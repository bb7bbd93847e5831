-- Lets the hold last `lease` from now. A script, because it must touch the caller's own hold only.
--
-- KEYS     as in lock.lua
-- ARGV[2]  lease in milliseconds
--
-- {'renewed'} | {'lost'}

if redis.call('GET', lock) == id then
  expire(lock, ARGV[2])
  expire(record, ARGV[2] + MINUTE)
  return {'renewed'}
end
-- A waiter that comes with an old grant is not given a new one here: its fence is another.
if redis.call('EXISTS', lock) == 0 and not redis.call('ZSCORE', queue, id) then
  pump(now())
end
return {'lost'}
