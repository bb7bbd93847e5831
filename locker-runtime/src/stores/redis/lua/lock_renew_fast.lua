-- Extends the hold to `lease` from now, unless it lasts longer: renewals of a run may overtake each other.
-- A script, because it must renew only the caller's own hold.
-- This part comes before lock.lua: most renewals end here.
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

