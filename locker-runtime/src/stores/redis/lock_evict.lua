-- Ends the hold, whoever has it or if this id has, and hands the lock to the next in line. A script for the same
-- reasons as the release.
--
-- KEYS     as in lock.lua
-- ARGV[1]  id; all zeros: whoever has it
-- ARGV[2]  the highest fence whose hold is ended: the copy of a request does not end the hold of the next in line
--
-- 'released' | 'not_held'

local holder, recorded = redis.call('GET', lock), string.match(tostring(redis.pcall('GET', record)), '^%d+')
local is_meant = holder == id or holder and string.match(id, '^0+$')
if not is_meant or tonumber(recorded or 0) > tonumber(ARGV[2]) then
  return 'not_held'
end
redis.call('DEL', lock)
hand_over()
return 'released'
