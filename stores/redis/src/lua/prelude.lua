-- The shared part of all primitives except the lock: names, the queue, and remembered ids.
-- KIND is set before it, because the key with the kind may be gone.
--
-- KEYS[1]  K      hash: 'kind', and the fields of the primitive
-- KEYS[2]  {K}:q  waiters' ids by ticket
-- KEYS[3]  {K}:w  id -> record of the waiter; see watchers.lua
-- KEYS[4]  {K}:a  \
-- KEYS[5]  {K}:b   > see each primitive
-- KEYS[6]  {K}:z  /
-- ARGV[1]  operation
-- ARGV[2]  id
-- ARGV[3]  channel of the caller's process
-- ARGV[4]  milliseconds for which a place in the queue is kept, 'no': do not wait

local key, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local op, id, channel, live = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = now()

local SECOND, MINUTE, DAY = 1000, 60000, 86400000

-- Whole numbers below 2^53 to the last digit.
local function text(number)
  return string.format('%.0f', number)
end

local function is_of(kind, found)
  return not found or found == kind
end

-- Extends a key's expiry to at least this time.
local function keep(name, milliseconds)
  if left(name) < milliseconds then
    expire(name, milliseconds)
  end
end

local function tell(signal, waiter, to, fence)
  return publish(to, string.format('%s %s %s %s %s', KIND, signal, waiter, fence or '0', key))
end

local function leave(waiter)
  if redis.call('ZREM', queue, waiter) == 1 then
    redis.call('HDEL', waiters, waiter)
    return true
  end
end

-- Joins at the end, or keeps the place. Returns how many tickets are ahead.
local function join(record, kept)
  local ticket, last = redis.call('ZSCORE', queue, id), redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  if not ticket then
    ticket = (last or 0) + 1
    redis.call('ZADD', queue, ticket, id)
  end
  redis.call('HSET', waiters, id, record)
  if not last or left(queue) < kept then
    expire(queue, kept)
    expire(waiters, kept)
  end
  return ticket - redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
end

-- Remembers an id for a minute.
local function remember(name, who)
  if not redis.call('ZSCORE', name, who) then
    redis.call('ZADD', name, text(time + MINUTE * 1000), who)
    expire(name, MINUTE)
  end
end

local function forget(name)
  redis.call('ZREMRANGEBYSCORE', name, '-inf', text(time))
end

local function remembers(name, who)
  return redis.call('ZSCORE', name, who)
end

-- Whether this is a late copy of a retried attempt. After a retry, all copies are late. '-' is not an attempt.
local function is_late(refused, attempt, repeated)
  local late = attempt and attempt ~= '-' and remembers(refused, attempt)
  if repeated == '1' then
    remember(refused, attempt)
  end
  return late
end
