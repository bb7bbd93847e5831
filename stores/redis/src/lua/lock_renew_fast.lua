-- Extends the hold to `lease` from now, unless it lasts longer: renewals of a run may overtake each other.
-- A script, because it must renew only the caller's own hold.
-- Most renewals end here. This part is a script of its own, which names only keys that exist as long as the hold does:
-- while a slot moves, a node refuses a script with any other. It also comes before lock.lua.
--
-- KEYS     as in lock.lua
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  what is recorded about a run that is confirmed: no other is renewed; may be missing
--
-- 'renewed FENCE' | 'lost' | nothing, in the script of its own

local function is_meant()
  return not ARGV[3] or ARGV[3] == string.gsub(redis.call('GET', KEYS[2]) or '', ' %?', ' ', 1)
end

if redis.call('GET', KEYS[1]) == ARGV[1] and is_meant() then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('PEXPIRE', KEYS[2], ARGV[2] + 60000)
  end
  local recorded = redis.call('GET', KEYS[2]) or ''
  local first, last = string.match(recorded, '^(%d+ %S+ )%?(.*)$')
  if first then
    -- The run is confirmed. A write that never fails for lack of memory allows the next one.
    redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
    redis.call('SET', KEYS[2], first .. last, 'KEEPTTL')
  end
  return 'renewed ' .. (string.match(recorded, '^%d+') or 0)
end

