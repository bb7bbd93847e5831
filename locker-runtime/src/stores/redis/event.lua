-- The event. A script, because of many sends one may succeed, and no wait may fall between looking and joining.
--
-- K        by, message: who has sent it, and what; the key lives as long as the event stays sent
-- ARGV[5]  message   ARGV[6]  milliseconds to keep it
--
-- {'message', text} | {'queued', ahead, -1} | {'busy', 0} | {'done'} | {'conflict'} | {'cancelled'} | {'wrong_kind'}

local found = redis.call('HMGET', key, 'kind', 'by', 'message')
if not is_of('event', found[1]) then
  return {'wrong_kind'}
end

if op == 'inspect' then
  local ends_in = found[2] and math.floor(left(key) * 1000) or -1
  return {found[1] and 'inspected' or 'unknown', -1, -1, redis.call('ZCARD', queue), ends_in, found[2] and 1 or 0, 0, 0}
elseif op == 'wait' then
  if found[2] then
    leave(id)
    return {'message', found[3]}
  end
  if live then
    redis.call('HSET', key, 'kind', 'event')
    keep(key, live)
  end
  return watch()
elseif op == 'send' then
  if found[2] then
    return {found[2] == id and 'done' or 'conflict'}
  end
  redis.call('HSET', key, 'kind', 'event', 'by', id, 'message', ARGV[5])
  expire(key, tonumber(ARGV[6]))
  dismiss('wake')
  return {'done'}
elseif op == 'reset' then
  redis.call('DEL', key)
  local kept = left(queue)
  if kept > 0 then
    redis.call('HSET', key, 'kind', 'event')
    expire(key, kept)
  end
  return {'done'}
end
leave(id)
if not found[2] and redis.call('EXISTS', queue) == 0 then
  redis.call('DEL', key)
end
return {'cancelled'}
