-- The barrier. A script, because the last arrival of a round must find all others.
--
-- K        parties; closed: until when the last round is remembered, if there was one
-- {K}:a    ids that have passed, and cancelled ids whose late copies may still arrive
-- {K}:z    waits ended by a last arrival
-- ARGV[5]  parties   ARGV[6]  1: do not count this id from now on; of an arrival, that the round is the last one
--
-- {'done'} | {'conflict'}: there was a last round | {'queued', ahead, -1} | {'busy', 0} | {'cancelled'}
-- | {'wrong_kind'}

local passed = KEYS[4]
local fields = redis.call('HMGET', key, 'kind', 'closed')
local found, is_closed = fields[1], tonumber(fields[2] or 0) > time
if not is_of('barrier', found) then
  return {'wrong_kind'}
end

forget(passed)

local function has_passed()
  return remembers(passed, id) or answer_for(id)
end

if op == 'inspect' then
  local parties = tonumber(redis.call('HGET', key, 'parties') or -1)
  return {found and 'inspected' or 'unknown', parties, -1, waiting(), -1, is_closed and 1 or 0, 0, 0}
elseif op == 'cancel' then
  if ARGV[6] == '1' and not has_passed() then
    remember(passed, id)
    withdraw(id)
  elseif ARGV[6] ~= '1' then
    withdraw(id)
    redis.call('ZREM', passed, id)
  end
  if waiting() == 0 and redis.call('EXISTS', passed) == 0 and not is_closed then
    redis.call('DEL', key)
  end
  return {'cancelled'}
end
if has_passed() then
  return {'done'}
end

if ARGV[6] == '1' and is_closed then
  withdraw(id)
  return {'conflict'}
end

local is_here = redis.call('ZSCORE', lives, id)
local parties = is_here and tonumber(redis.call('HGET', key, 'parties')) or tonumber(ARGV[5])
local others = waiting() - (is_here and 1 or 0)
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
  withdraw(id)
  remember(passed, id)
  dismiss('')
  return {'done'}
end
-- The latest arrival sets the number of parties, also if it does not wait.
if live or found then
  redis.call('HSET', key, 'kind', 'barrier', 'parties', text(parties))
  keep(key, live or 1)
end
return watch()
