-- Leaves the queue, and ends the hold if there is one. A script for the same reasons as the release.
--
-- KEYS     as in lock.lua
-- ARGV[2]  1: refuse this id from now on, a copy of its acquire may still arrive
--
-- 'cancelled', followed by 1 if there are more dead waiters to remove

check_helpers()
leave(id)
local holder, _, sign = read_hold(redis.call('GET', lock))
local is_its = holder == id or holder and attempt_of(holder, record_of(sign)) == id
if is_its then
  end_hold()
end
if is_its or not holder then
  hand_over(is_its)
end
if ARGV[2] == '1' then
  refuse(id)
end
return answer('cancelled')
