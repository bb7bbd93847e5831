-- Lets the hold last `lease` from now, or as long as it does if that is longer: renewals of a run may pass each other.
-- A script, because it must touch the caller's own hold only.
-- The first part of it comes before lock.lua: most renewals end there.
--
-- KEYS     as in lock.lua
-- ARGV[2]  lease in milliseconds
--
-- 'renewed FENCE' | 'lost'

if redis.call('GET', KEYS[1]) == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('PEXPIRE', KEYS[2], ARGV[2] + 60000)
  end
  return 'renewed ' .. (string.match(redis.call('GET', KEYS[2]) or '', '^%d+') or 0)
end

