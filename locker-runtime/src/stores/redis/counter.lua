-- The counter. A script, because a repeated addition must not count twice.
--
-- K        value; the key lives a day after the last change
-- {K}:a    ids that have added
-- ARGV[5]  how much, or what to set it to
--
-- {'value', value} | {'conflict'} | {'wrong_kind'}

local seen = KEYS[4]
local found = redis.call('HMGET', key, 'kind', 'value')
if not is_of('counter', found[1]) then
  return {'wrong_kind'}
end
local value = tonumber(found[2] or 0)
forget(seen)

local function set_to(number)
  redis.call('HSET', key, 'kind', 'counter', 'value', text(number))
  expire(key, number == 0 and MINUTE or DAY)
  return {'value', number}
end

if op == 'inspect' then
  return {found[1] and 'inspected' or 'unknown', -1, -1, 0, -1, -1, 1, value}
elseif op == 'get' then
  return {'value', value}
elseif op == 'set' then
  return set_to(tonumber(ARGV[5]))
end
if remembers(seen, id) then
  return {'value', value}
end
local sum = value + tonumber(ARGV[5])
if math.abs(sum) >= 2 ^ 53 then
  return {'conflict'}
end
remember(seen, id)
return set_to(sum)
