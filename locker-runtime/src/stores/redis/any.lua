-- Which primitive lives at a key, and forgetting it whatever it is. A script, because those who wait must be told
-- and forgotten in one step.
--
-- KEYS     K, {K}:q, {K}:w, {K}:a, {K}:b, {K}:z, {K}:y, and {K}:f, the fence, which stays for a minute
-- ARGV[1]  'kind' or 'delete'
--
-- {'kind', name} | {'inspected', ..} of a lock | {'unknown'} | {'deleted'}

local key, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local found = redis.call('TYPE', key).ok
local kind = found == 'string' and 'lock' or found == 'hash' and redis.call('HGET', key, 'kind')
if not kind and redis.call('EXISTS', queue) == 1 then
  kind = 'lock'
end
if not kind then
  return {'unknown'}
end

if ARGV[1] == 'delete' then
  for _, waiter in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    local channel = string.match(redis.call('HGET', waiters, waiter) or '', '%S+$')
    if channel then
      publish(channel, string.format('%s deleted %s 0 %s', kind, waiter, key))
    end
  end
  local fence = kind == 'semaphore' and redis.call('HGET', key, 'fence')
  if fence then
    set(KEYS[8], fence, 60000)
  end
  redis.call('DEL', unpack(KEYS, 1, 7))
  return {'deleted'}
elseif kind ~= 'lock' then
  return {'kind', kind}
end

local waiting = redis.call('ZCARD', queue)
if found == 'none' then
  return {'inspected', 1, -1, waiting, -1, -1, 0, 0}
end
local record = redis.call('GET', KEYS[8]) or '0'
local till = left(key)
return {'inspected', 1, -1, waiting, -1, -1, 0, 0, -1, till < 0 and -1 or math.floor(till * 1000),
  tonumber(string.match(record, '^%d+')), 1}
