-- Ends the hold and hands the lock to the next in line. A script, because it must touch the caller's own hold only,
-- and nobody may come between the end of it and the next one.
--
-- KEYS     as in lock.lua
-- ARGV[2]  1: refuse this id from now on, a copy of its acquire may still arrive
--
-- {'released'} | {'not_held'}

local reply = 'not_held'
if redis.call('GET', lock) == id then
  redis.call('DEL', lock)
  hand_over()
  reply = 'released'
end
if ARGV[2] == '1' then
  bury()
end
return {reply}
