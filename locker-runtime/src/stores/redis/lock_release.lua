-- Ends the hold and hands the lock to the next in line. A script, because it must touch the caller's own hold only,
-- and nobody may come between the end of it and the next one.
-- The first part of it comes before lock.lua: most releases end there.
--
-- KEYS     as in lock.lua
-- ARGV[2]  1: refuse this id from now on, a copy of its acquire may still arrive
--
-- 'released' | 'not_held'

local held = redis.call('GET', KEYS[1]) == ARGV[1]
if held then
  redis.call('DEL', KEYS[1])
  if ARGV[2] == '0' and redis.call('EXISTS', KEYS[3]) == 0 then
    return 'released'
  end
end

