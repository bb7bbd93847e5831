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
if redis.call('EXISTS', lock) == 0 then
  pump(now())
end
return {'lost'}
