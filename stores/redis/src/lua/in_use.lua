-- Tells keys that are in use from semaphores and read/write locks that are idle: their keys outlive the last hold by a
-- minute. A script, because 512 keys are looked at in one round trip.
--
-- KEYS     K of each key, then {K}:q of each key, then {K}:a of each key
--
-- '1' for each key in use and '0' for each idle one, in one text

local count = #KEYS / 3
local time = string.format('%.0f', now())
local answers = {}

local function is_idle(key, queue, ends)
  local found = redis.call('TYPE', key).ok
  if found == 'none' then
    return redis.call('ZCOUNT', queue, 0, '+inf') == 0
  end
  return found == 'hash' and redis.call('HGET', key, 'kind') == 'semaphore' and redis.call('EXISTS', queue) == 0
    and not redis.call('ZRANGEBYSCORE', ends, '(' .. time, 'inf', 'LIMIT', 0, 1)[1]
end

for at = 1, count do
  answers[at] = is_idle(KEYS[at], KEYS[count + at], KEYS[2 * count + at]) and '0' or '1'
end
return table.concat(answers)
