-- Returns the kind of a key, or deletes a key of any kind. A script, because waiters must be notified and removed in
-- one step.
--
-- KEYS     K, {K}:q, {K}:w, {K}:a, {K}:b, {K}:y; {K}:f of lock.lua; {K}:x:id: this attempt is refused; {K}:p; {K}:z and
--          {K}:e of watchers.lua
-- ARGV[1]  the attempt of a deletion
-- ARGV[2]  'kind' or 'delete'
-- ARGV[3]  1: refuse this attempt from now on, an earlier copy of it may still arrive
--
-- {'kind', name} | {'kind', 'semaphore;<first waiters>'} | {'inspected', .., '<holder>;<first waiters>'} of a lock | {'unknown'} | {'deleted'}

local key, queue, waiters, record, tombstone, rounds = KEYS[1], KEYS[2], KEYS[3], KEYS[7], KEYS[8], KEYS[10]
local found = redis.call('TYPE', key).ok
local kind = found == 'string' and 'lock' or found == 'hash' and redis.call('HGET', key, 'kind')
-- Former waiters of watchers.lua may outlive their key.
if not kind and redis.call('ZCOUNT', queue, 0, '+inf') > 0 and redis.call('EXISTS', waiters) == 1
  and redis.call('EXISTS', rounds) == 0 then
  kind = 'lock'
end
local function add_tombstone()
  if ARGV[3] == '1' then
    set(tombstone, 1, 60000, 'NX')
  end
end
if not kind or ARGV[2] == 'delete' and redis.call('EXISTS', tombstone) == 1 then
  add_tombstone()
  return {'unknown'}
end

local function notify_each()
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', queue, 0, '+inf')) do
    local channel = string.match(redis.call('HGET', waiters, waiter) or '', '%S+$')
    if channel then
      publish(channel, string.format('%s deleted %s 0 %s', kind, waiter, key))
    end
  end
  -- A lock has refused ids there, which stay for their minute.
  redis.call('ZREMRANGEBYSCORE', queue, 0, '+inf')
end

-- Those whose wait has ended keep their answer.
local function notify_processes()
  for _, process in ipairs(redis.call('ZRANGEBYSCORE', waiters, string.format('(%.0f', now()), '+inf')) do
    publish(process, string.format('%s deleted - 0 %s', kind, key))
  end
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  redis.call('UNLINK', waiters, KEYS[11])
  if redis.call('EXISTS', rounds) == 0 then
    redis.call('UNLINK', queue)
  elseif last and tonumber(last) > tonumber(redis.call('ZRANGE', rounds, -1, -1, 'WITHSCORES')[2]) then
    redis.call('ZADD', rounds, last, last .. ' 0 ')
  end
end

if ARGV[2] == 'delete' then
  local is_watched = kind == 'event' or kind == 'latch' or kind == 'barrier' or kind == 'watchdog'
    or kind == 'record'
  if is_watched then notify_processes() else notify_each() end
  -- The process of a run notifies its members.
  local recorded = kind == 'lock' and redis.call('GET', record) or ''
  local fence, channel, run = string.match(recorded, '^(%d+) %S+ %??(%S+) (%S+)$')
  if run and redis.call('GET', key) == run .. ' ' .. fence .. ' *' then
    publish(channel, string.format('lock deleted %s %s %s', run, fence, key))
  end
  -- Deletion comes before SET: a script that has deleted something may write at maxmemory.
  redis.call('DEL', key, waiters, KEYS[6], KEYS[9])
  if kind == 'lock' then
    redis.call('DEL', record)
  end
  -- Data that refuses late copies stays for its minute.
  if kind == 'semaphore' or kind == 'rate' then
    redis.call('DEL', KEYS[4], KEYS[5])
  elseif kind == 'record' and left(KEYS[5]) > 60000 then
    expire(KEYS[5], 60000)
  end
  add_tombstone()
  return {'deleted'}
elseif kind == 'semaphore' then
  return {'kind', kind .. ';' .. table.concat(redis.call('ZRANGE', queue, 0, 99), ' ')}
elseif kind ~= 'lock' then
  return {'kind', kind}
end

local waiting = redis.call('EXISTS', waiters) == 1 and redis.call('ZCOUNT', queue, 0, '+inf') or 0
local first = ';' .. (waiting > 0
  and table.concat(redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'LIMIT', 0, 100), ' ') or '')
if found == 'none' then
  return {'inspected', 1, -1, waiting, -1, -1, 0, 0, first}
end
local till, held = left(key), redis.call('GET', key)
local holder, fence = string.match(held, '^(%x+) (%d+)')
return {'inspected', 1, -1, waiting, -1, -1, 0, 0, -1, till < 0 and -1 or math.floor(till * 1000),
  tonumber(fence or 0), 1, (holder or string.match(held, '^%x+$') or '') .. first}
