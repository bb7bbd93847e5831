-- Tells keys that are in use from semaphores and read/write locks that are idle: their keys outlive the last hold by a
-- minute. A script, because 512 keys are looked at in one round trip.
--
-- KEYS     K of each key, then {K}:q of each key, then {K}:w of each, then {K}:a of each
--
-- '1' for each key in use and '0' for each idle one, in one text

local count = #KEYS / 4
local time = string.format('%.0f', now())
local answers = {}

local function is_idle(key, queue, waiters, ends)
  local found = redis.call('TYPE', key).ok
  if found == 'none' then
    -- A lock's refused ids are in its queue.
    return redis.call('EXISTS', waiters) == 0 or redis.call('ZCOUNT', queue, 0, '+inf') == 0
  end
  return found == 'hash' and redis.call('HGET', key, 'kind') == 'semaphore' and redis.call('EXISTS', queue) == 0
    and not redis.call('ZRANGEBYSCORE', ends, '(' .. time, 'inf', 'LIMIT', 0, 1)[1]
end

for at = 1, count do
  answers[at] = is_idle(KEYS[at], KEYS[count + at], KEYS[2 * count + at], KEYS[3 * count + at]) and '0' or '1'
end
return table.concat(answers)
