-- Ends the hold and grants the lock to the next waiter. A script, because it must end only the caller's own hold, and
-- the end and the next grant must be one step.
--
-- KEYS     as in lock.lua
-- ARGV[2]  1: refuse this id from now on, a copy of its acquire may still arrive
--
-- 'released', followed by 1 if there are more dead waiters to remove | 'not_held'

local held = read_hold(redis.call('GET', lock)) == id
if held then
  check_helpers()
  end_hold()
  hand_over(true)
end
if ARGV[2] == '1' then
  refuse(id)
end
return held and answer('released') or 'not_held'
