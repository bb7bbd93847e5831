-- Extends a hold without a name. A script for the same reason as the semaphore's, which does the rest.
-- It names only keys that exist as long as the hold does: while a slot moves, a node refuses a script with any other.
--
-- KEYS     K, {K}:a of semaphore.lua
-- ARGV     as in semaphore.lua
--
-- {'renewed', fence} | nothing, if the hold is not there, would become shorter, or has a name

local key, ends, id, lease = KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[5])
local time, field = now(), 'h:' .. ARGV[2]
local found = redis.call('HMGET', key, 'kind', field)
local before = tonumber(redis.call('ZSCORE', ends, id) or 0)
local hold, fence, attempt, unconfirmed = string.match(found[2] or '', '^((%d+) %d+ %d+ (%x+)) (%d)$')
local after = time + lease * 1000
if found[1] ~= 'semaphore' or attempt ~= id or before <= time or after < before or is_doubtful(before - time) then
  return
end

if unconfirmed == '1' then
  redis.call('HSET', key, field, hold .. ' 0')
end
redis.call('ZADD', ends, after < math.huge and string.format('%.0f', after) or 'inf', id)
-- A minute longer than the hold, as in semaphore.lua.
local kept = math.min(lease, 100 * 365 * 86400000) + 60000
if left(key) < kept then
  expire(key, kept)
  expire(ends, kept)
end
return {'renewed', tonumber(fence)}
