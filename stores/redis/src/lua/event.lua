-- The event. A script, because only one of many sends may succeed, and a wait must check and join in one step.
--
-- K        by, message: id and text of the send; the key lives while the event stays sent
-- {K}:b    retried sends and resets, "once <id>" -> reply: others may have reset and sent it before the next copy
-- {K}:z    the answer is the message: the event may be over when a waiter asks again
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
  dismiss(ARGV[5])
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
  return {found[1] and 'inspected' or 'unknown', -1, -1, waiting(), ends_in, found[2] and 1 or 0, 0, 0}
elseif op == 'wait' then
  local told = answer_for(id)
  if told then
    return {'message', told}
  elseif found[2] then
    withdraw(id)
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
withdraw(id)
if not found[2] and waiting() == 0 and redis.call('EXISTS', ends) == 0 then
  redis.call('DEL', key)
end
return {'cancelled'}
