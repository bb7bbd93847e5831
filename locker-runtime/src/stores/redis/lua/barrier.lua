-- The barrier. A script, because the last arrival of a round must find all others.
--
-- K        parties; closed: until when the last round is remembered, if there was one
-- {K}:w    id -> "<channel>"   {K}:b  ids of waiters by live until   {K}:a  ids that have passed,
--          and cancelled ids whose late copies may still arrive
-- ARGV[5]  parties   ARGV[6]  1: do not count this id from now on; of an arrival, that the round is the last one
--
-- {'done'} | {'conflict'}: there was a last round | {'queued', ahead, -1} | {'busy', 0} | {'cancelled'} | {'wrong_kind'}

local passed, lives = KEYS[4], KEYS[5]
local fields = redis.call('HMGET', key, 'kind', 'closed')
local found, is_closed = fields[1], tonumber(fields[2] or 0) > time
if not is_of('barrier', found) then
  return {'wrong_kind'}
end

for _, dead in ipairs(redis.call('ZRANGEBYSCORE', lives, '-inf', text(time))) do
  leave(dead)
end
forget(lives)
forget(passed)

if op == 'inspect' then
  local parties = tonumber(redis.call('HGET', key, 'parties') or -1)
  return {found and 'inspected' or 'unknown', parties, -1, redis.call('ZCARD', queue), -1, is_closed and 1 or 0, 0, 0}
elseif op == 'cancel' then
  leave(id)
  redis.call('ZREM', lives, id)
  if ARGV[6] == '1' then
    remember(passed, id)
  else
    redis.call('ZREM', passed, id)
  end
  if redis.call('EXISTS', queue, passed) == 0 and not is_closed then
    redis.call('DEL', key)
  end
  return {'cancelled'}
end
if remembers(passed, id) then
  return {'done'}
end

if ARGV[6] == '1' and is_closed then
  leave(id)
  redis.call('ZREM', lives, id)
  return {'conflict'}
end

local is_here = redis.call('ZSCORE', queue, id)
local parties = is_here and tonumber(redis.call('HGET', key, 'parties')) or tonumber(ARGV[5])
local others = redis.call('ZCARD', queue) - (is_here and 1 or 0)
if others + 1 >= parties then
  redis.call('HSET', key, 'kind', 'barrier', 'parties', text(parties))
  if ARGV[6] == '1' then
    redis.call('HSET', key, 'closed', text(time + DAY * 1000))
    expire(key, DAY)
  elseif is_closed then
    keep(key, MINUTE)
  else
    expire(key, MINUTE)
  end
  leave(id)
  remember(passed, id)
  for _, waiter in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    remember(passed, waiter)
  end
  dismiss('wake')
  redis.call('DEL', lives)
  return {'done'}
end
-- The latest arrival sets the number of parties, also if it does not wait.
if live or found then
  redis.call('HSET', key, 'kind', 'barrier', 'parties', text(parties))
  keep(key, live or 1)
end
if live then
  redis.call('ZADD', lives, text(time + live * 1000), id)
  keep(lives, live)
else
  redis.call('ZREM', lives, id)
end
return watch()
