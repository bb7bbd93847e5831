-- Extends the hold to `lease` from now, unless it lasts longer: renewals of a run may overtake each other.
-- A script, because it must renew only the caller's own hold.
-- Most renewals end here. This part is two scripts of its own, which name only keys that exist as long as the hold
-- does: while a slot moves, a node refuses a script with any other. It also comes before lock.lua.
--
-- KEYS     as in lock.lua: K alone, K and {K}:f, or all
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  what is recorded about a run that is confirmed: no other is renewed; may be missing
--
-- 'renewed FENCE' | 'lost' | nothing, in the scripts of its own

local found = redis.call('GET', KEYS[1]) or ''
local has_record = string.sub(found, -1) == '*'
local record = KEYS[#KEYS > 2 and 4 or 2]
local recorded = has_record and record and redis.call('GET', record) or ''

if string.sub(found, 1, 32) == ARGV[1] and (record or not has_record)
  and (not ARGV[3] or ARGV[3] == string.gsub(recorded, ' %?', ' ', 1)) then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    if has_record then
      redis.call('PEXPIRE', record, ARGV[2] + 60000)
    end
  end
  local first, last = string.match(recorded, '^(%d+ %S+ )%?(.*)$')
  if first then
    -- The run is confirmed. A write that never fails for lack of memory allows the next one.
    redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
    redis.call('SET', record, first .. last, 'KEEPTTL')
  end
  return 'renewed ' .. (string.match(found, ' (%d+)') or 0)
end

