-- Ends the hold, of any holder or of this id or run, and grants the lock to the next waiter. A script for the same
-- reasons as the release.
--
-- KEYS     as in lock.lua
-- ARGV[1]  id; all zeros: any holder
-- ARGV[2]  the highest fence to end: a copy of the request does not end the hold of the next waiter
-- ARGV[3]  what is recorded about a run that is not confirmed: no other is ended; may be missing
--
-- 'released', followed by 1 if there are more dead waiters to remove | 'not_held'

local holder, fence, sign = read_hold(redis.call('GET', lock))
local recorded, of_anybody = record_of(sign), string.match(id, '^0+$')
if not holder or holder ~= id and not of_anybody or (fence or 0) > tonumber(ARGV[2]) then
  return 'not_held'
end
if ARGV[3] and recorded ~= ARGV[3] then
  return 'not_held'
end
check_helpers()
end_hold()
local _, channel = run_of(holder, recorded)
if of_anybody and channel then
  publish(channel, string.format('lock lost %s %.0f %s', holder, fence, lock))
end
hand_over(true)
return answer('released')
