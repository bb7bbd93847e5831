-- Ends the hold and grants the lock to the next waiter. A script, because it must end only the caller's own hold, and
-- the end and the next grant must be one step.
-- This part comes before lock.lua: most releases end here.
--
-- KEYS     as in lock.lua
-- ARGV[2]  1: refuse this id from now on, a copy of its acquire may still arrive
--
-- 'released', followed by 1 if there are more dead waiters to remove | 'not_held'

if ARGV[2] == '0' and redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('ZCARD', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return 'released'
end

