-- The event. A script, because only one of many sends may succeed, and a wait must check and join in one step.
--
-- K        by, message: id and text of the send; the key lives while the event stays sent
-- {K}:b    waiter's id -> "sent <id of the send>", and that -> message: the event may be over when they ask again;
--          retried sends and resets: "once <id>" -> reply: others may have reset and sent it before the next copy
-- ARGV[5]  message   ARGV[6]  milliseconds to keep it
-- ARGV[7]  1: remember the reply, an earlier copy of this request may still arrive
--
-- {'message', text} | {'queued', ahead, -1} | {'busy', 0} | {'done'} | {'conflict'} | {'cancelled'} | {'wrong_kind'}

local found = redis.call('HMGET', key, 'kind', 'by', 'message')
if not is_of('event', found[1]) then
  return {'wrong_kind'}
end

local function send()
  if found[2] then
    return found[2] == id and 'done' or 'conflict'
  end
  redis.call('HSET', key, 'kind', 'event', 'by', id, 'message', ARGV[5])
  expire(key, tonumber(ARGV[6]))
  local waiting, told = redis.call('ZRANGE', queue, 0, -1), 'sent ' .. id
  for _, waiter in ipairs(waiting) do
    remember_answer(waiter, told)
  end
  if waiting[1] then
    remember_answer(told, ARGV[5])
  end
  dismiss('wake')
  return 'done'
end

local function reset()
  redis.call('DEL', key)
  local kept = math.max(left(queue), left(ends))
  if kept > 0 then
    redis.call('HSET', key, 'kind', 'event')
    expire(key, kept)
  end
  return 'done'
end

if op == 'inspect' then
  local ends_in = found[2] and math.floor(left(key) * 1000) or -1
  return {found[1] and 'inspected' or 'unknown', -1, -1, redis.call('ZCARD', queue), ends_in, found[2] and 1 or 0, 0, 0}
elseif op == 'wait' then
  local told = answer_to(id)
  if told then
    return {'message', answer_to(told)}
  elseif found[2] then
    leave(id)
    return {'message', found[3]}
  end
  if live then
    redis.call('HSET', key, 'kind', 'event')
    keep(key, live)
  end
  return watch()
elseif op == 'send' or op == 'reset' then
  local attempt = 'once ' .. id
  local reply = answer_to(attempt)
  if not reply then
    reply = op == 'send' and send() or reset()
    if ARGV[7] == '1' then
      remember_answer(attempt, reply)
    end
  end
  return {reply}
end
leave(id)
forget_answer(id)
if not found[2] and redis.call('EXISTS', queue, ends) == 0 then
  redis.call('DEL', key)
end
return {'cancelled'}
