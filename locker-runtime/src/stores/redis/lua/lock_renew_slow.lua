
-- The rest of lock_renew.lua.

-- A waiter that comes with an old grant is not given a new one here: its fence is another.
if redis.call('EXISTS', lock) == 0 and not redis.call('ZSCORE', queue, id) then
  pump(now())
end
return answer('lost')
