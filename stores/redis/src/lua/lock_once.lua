-- Releases or renews a hold that may be held again and again under its name. A script for the same reasons as the
-- release and the renewal. Late copies of a request that was retried have no effect.
--
-- KEYS     as in lock.lua
-- ARGV[1]  the attempt at the change
-- ARGV[2]  the name of the hold
-- ARGV[3]  1: refuse this attempt from now on, an earlier copy of it may still arrive
-- ARGV[4]  lease in milliseconds; missing for a release
--
-- 'released' | 'lost', each followed by 1 if there are more dead waiters to remove | 'not_held' | 'renewed FENCE'

local name, lease = ARGV[2], tonumber(ARGV[4])
local is_late = is_refused(id, now())
local holder, fence = read_hold(redis.call('GET', lock))
if lease and holder == name and is_doubtful(left(lock) * 1000) then
  return 'lost'
end
check_helpers()
local reply
if lease and holder == name then
  if not is_late and left(lock) < lease then
    expire(lock, lease)
    expire(record, lease + MINUTE)
  end
  reply = string.format('renewed %.0f', fence or 0)
elseif lease then
  -- As in lock_renew_slow.lua.
  if not holder and not place(name) then
    grant_waiters(now())
  end
  reply = answer('lost')
elseif is_late or holder ~= name then
  reply = 'not_held'
else
  end_hold()
  hand_over(true)
  reply = answer('released')
end
if ARGV[3] == '1' then
  refuse(id)
end
return reply
