-- The counter. A script, because a retried change must not count twice.
--
-- K        value; the key lives a day after the last change
-- {K}:b    ids of additions and retried sets -> the value of the reply
-- ARGV[5]  the amount to add, or the value to set
-- ARGV[6]  1: remember the reply to this set, an earlier copy of it may still arrive
--
-- {'value', value} | {'conflict'} | {'wrong_kind'}

local found = redis.call('HMGET', key, 'kind', 'value')
if not is_of('counter', found[1]) then
  return {'wrong_kind'}
end
local value = tonumber(found[2] or 0)

local function set_to(number)
  redis.call('HSET', key, 'kind', 'counter', 'value', text(number))
  expire(key, number == 0 and MINUTE or DAY)
  return {'value', number}
end

if op == 'inspect' then
  return {found[1] and 'inspected' or 'unknown', -1, -1, 0, -1, -1, 1, value}
elseif op == 'get' then
  return {'value', value}
end
local answered = answer_to(id)
if answered then
  return {'value', tonumber(answered)}
end
local by = tonumber(ARGV[5])
if op == 'set' then
  if ARGV[6] == '1' then
    remember_answer(id, text(by))
  end
  return set_to(by)
end
local sum = value + by
if math.abs(by) >= 2 ^ 53 or math.abs(sum) >= 2 ^ 53 then
  return {'conflict'}
end
remember_answer(id, text(sum))
return set_to(sum)
