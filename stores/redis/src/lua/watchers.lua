-- Waiters for something that is not held. A notification makes them ask again. The end of their wait is recorded once
-- for all of them, and each process gets one message: no script does work for each waiter.
--
-- {K}:q  waiters' ids by ticket; those whose wait has ended keep their tickets for a minute
-- {K}:w  channels of the processes that have waiters, by the end of the longest life of one
-- {K}:z  ended waits by their last ticket: "<ticket> <end of their minute> <answer>"; the minute of 0 is over
-- {K}:e  waiters' ids by the end of their lives without another request: later they do not count

local rounds, lives = KEYS[6], KEYS[7]

-- The maximum of former waiters, of dead ones, and of channels that one script removes.
local PURGE = 1000

local function is_over(round)
  return tonumber(string.match(round, '^%d+ (%d+)')) <= time
end

local function withdraw(...)
  redis.call('ZREM', queue, ...)
  redis.call('ZREM', lives, ...)
end

local function dead_in(name)
  return redis.call('ZRANGEBYSCORE', name, '-inf', text(time), 'LIMIT', 0, PURGE)
end

local function forget_rounds()
  local room = PURGE
  while room > 0 do
    local round, last = unpack(redis.call('ZRANGE', rounds, 0, 0, 'WITHSCORES'))
    if not round or not is_over(round) then return end
    local gone = redis.call('ZRANGEBYSCORE', queue, '-inf', last, 'LIMIT', 0, room)
    if gone[1] then
      withdraw(unpack(gone))
    end
    if #gone == room then return end
    room = room - #gone - 1
    redis.call('ZREM', rounds, round)
  end
end

-- The last ticket whose wait has ended.
local ended = 0
if redis.call('EXISTS', rounds) == 1 then
  forget_rounds()
  ended = tonumber(redis.call('ZRANGE', rounds, -1, -1, 'WITHSCORES')[2] or 0)
end

-- The dead that are left do not count. The one that asks is not left.
local dead = dead_in(lives)
if dead[1] then
  withdraw(unpack(dead))
  if #dead == PURGE and tonumber(redis.call('ZSCORE', lives, id) or math.huge) <= time then
    withdraw(id)
  end
end

local function waiting()
  return redis.call('ZCOUNT', lives, '(' .. text(time), '+inf')
end

-- The ticket of the first waiter.
local function head()
  return redis.call('ZRANGEBYSCORE', queue, '(' .. text(ended), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
end

-- Former waiters that lost their round would wait again.
local function keep_queue(milliseconds)
  expire(queue, milliseconds)
  expire(rounds, milliseconds + SECOND)
end

-- Ends all waits. Without an answer the waiters are forgotten.
local function finish(answer)
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  redis.call('UNLINK', waiters)
  if redis.call('ZCOUNT', lives, '-inf', text(time)) == 0 then
    redis.call('UNLINK', lives)
  else
    -- The dead that are left get no answer.
    redis.call('ZREMRANGEBYSCORE', lives, '(' .. text(time), '+inf')
    keep(lives, MINUTE + SECOND)
  end
  if not answer and ended == 0 then
    redis.call('UNLINK', queue)
  elseif last then
    ended = tonumber(last)
    local over = answer and text(time + MINUTE * 1000) or '0'
    redis.call('ZADD', rounds, last, string.format('%s %s %s', last, over, answer or ''))
    keep_queue(math.max(left(queue), MINUTE))
  end
end

if redis.call('EXISTS', lives) == 0 and head() then
  finish()
end

-- Wakes all waiters. They get the answer when they ask again within a minute.
local function dismiss(answer)
  if not head() then return end
  for _, process in ipairs(redis.call('ZRANGEBYSCORE', waiters, '(' .. text(time), '+inf')) do
    publish(process, string.format('%s wake - 0 %s', KIND, key))
  end
  finish(answer)
end

-- The answer that has ended the wait of this id.
local function answer_for(waiter)
  local ticket = ended > 0 and redis.call('ZSCORE', queue, waiter)
  if not ticket or tonumber(ticket) > ended then return end
  local round = redis.call('ZRANGEBYSCORE', rounds, ticket, '+inf', 'LIMIT', 0, 1)[1]
  if round and not is_over(round) then
    return string.match(round, '^%d+ %d+ (.*)$')
  end
  withdraw(waiter)
end

-- Joins at the end, or keeps the place. Returns how many tickets are ahead.
local function enter()
  local ticket, first = redis.call('ZSCORE', queue, id), head()
  if not first then
    redis.call('UNLINK', waiters)
  end
  local gone = dead_in(waiters)
  if gone[1] then
    redis.call('ZREM', waiters, unpack(gone))
  end
  if not ticket then
    ticket = (first and redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or ended) + 1
    redis.call('ZADD', queue, ticket, id)
  end
  local life = text(time + live * 1000)
  redis.call('ZADD', waiters, 'GT', life, channel)
  redis.call('ZADD', lives, life, id)
  keep(waiters, live)
  keep(lives, live)
  if left(queue) < live then
    keep_queue(live)
  end
  return ticket - (first or ticket)
end

-- `due`: microseconds until it comes without a call at the earliest, if ever.
local function watch(due)
  if not live then
    withdraw(id)
    return {'busy', due or 0}
  end
  return {'queued', enter(), due or -1}
end
