-- What the scripts of every primitive but the lock share: names, the line of those who wait, ids to be remembered.
-- Before it stands KIND, what the primitive calls itself: its key may be gone that says so.
--
-- KEYS[1]  K      hash: 'kind', and what the primitive keeps
-- KEYS[2]  {K}:q  ids of those who wait, by ticket
-- KEYS[3]  {K}:w  id -> what is known of the one who waits
-- KEYS[4]  {K}:a  \
-- KEYS[5]  {K}:b   > as the primitive says
-- KEYS[6]  {K}:z  /
-- ARGV[1]  what to do
-- ARGV[2]  id
-- ARGV[3]  channel of the caller's process
-- ARGV[4]  for how many milliseconds a place in the line is kept, 'no': do not wait

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

-- Keeps a key at least so long.
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

-- Joins at the end, or stays. Answers how many tickets lie before.
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

-- Ids that are remembered for a minute.
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

-- Whether a copy of an attempt comes after one that was repeated; from such a one on, all do. Not of what is no attempt.
local function is_late(refused, attempt, repeated)
  local late = attempt and attempt ~= '-' and remembers(refused, attempt)
  if repeated == '1' then
    remember(refused, attempt)
  end
  return late
end
