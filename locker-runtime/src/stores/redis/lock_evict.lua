-- Ends the hold, whoever has it, and hands the lock to the next in line. A script for the same reasons as the release.
--
-- KEYS     as in lock.lua
-- ARGV[2]  the highest fence whose hold is ended: the copy of a request does not end the hold of the next in line
--
-- 'released' | 'not_held'

local recorded = string.match(redis.call('GET', record) or '0', '^%d+')
if not redis.call('GET', lock) or tonumber(recorded) > tonumber(ARGV[2]) then
  return 'not_held'
end
redis.call('DEL', lock)
hand_over()
return 'released'
