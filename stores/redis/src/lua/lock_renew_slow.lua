
-- The second part of lock_renew_fast.lua.

-- A waiter with an old grant does not get a new one here, which would have another fence.
if redis.call('EXISTS', lock) == 0 and not place(id) then
  grant_waiters(now())
end
return answer('lost')
