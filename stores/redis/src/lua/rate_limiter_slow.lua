-- Rate limiters. A script, because a reservation is found and taken in one step; the caller sleeps until then.
--
-- K        quota "<algorithm> <count> <interval> <burst>"; meter and tail: the use so far, and with all reservations,
--          as "w <start> <used>" or "g <at> <debt>"; line: 1 while there is a queue or a remembered id
-- {K}:w    id -> "<tokens> <at> <1: was woken> <give up> <live until> <channel>", times in microseconds,
--          'inf': never
-- {K}:a    due ids that may still ask for admission   {K}:b  refused ids
-- ARGV[5]  tokens   ARGV[7]  patience in microseconds, 'inf'
-- ARGV[6]  the settings: '<w fixed window, b token bucket, g GCRA> <count> <interval in microseconds> <burst, -: none>'
-- ARGV[8]  1: refuse this id from now on, a copy of its request may still arrive
--
-- {'admitted', microseconds to wait, and then: remaining, microseconds until all is free}
-- | {'limited', microseconds until admission or -1, remaining, microseconds until all is free, length of the queue}
-- | {'queued', ahead} | {'cancelled'} | {'wrong_kind'}

local admitted, refused = KEYS[4], KEYS[5]
local NEVER, TOLERANCE = math.huge, 0.001
-- In a longer queue only the first waiter moves up after a cancellation.
local MOVES_UP = 64

local found = redis.call('HMGET', key, 'kind', 'quota', 'meter', 'tail', 'line')
if not is_of('rate', found[1]) then
  return {'wrong_kind'}
end

local function read_quota(words)
  local algorithm, count, interval, burst = string.match(words, '^(%a) (%d+) (%d+) (%S+)$')
  local quota = {algorithm = algorithm, count = tonumber(count), interval = tonumber(interval), words = words}
  quota.size = quota.count == 0 and 0 or tonumber(burst) or quota.count
  -- The time of one token; without any tokens, the interval.
  quota.emission = quota.interval / math.max(quota.count, 1)
  -- A bucket keeps the beat of its refills for one idle interval, a window starts with its first request.
  quota.alignment = algorithm == 'b' and quota.interval or 0
  return quota
end

local function read_meter(words)
  if not words then
    return {start = 0, used = 0}
  end
  local kind, one, other = string.match(words, '^(%a) (%S+) (%S+)$')
  if kind == 'g' then
    return {gcra = true, at = tonumber(one), debt = tonumber(other)}
  end
  return {start = tonumber(one), used = tonumber(other)}
end

local function write_meter(meter)
  if meter.gcra then
    return string.format('g %.0f %.17g', meter.at, meter.debt)
  end
  return string.format('w %.0f %.0f', meter.start, meter.used)
end

local function is_new(meter)
  return not meter.gcra and meter.start == 0 and meter.used == 0
end

local function later(when, micros)
  return math.min(when + micros, LATEST)
end

-- The meter moved on to a time, unless it is ahead of it.
local function at(meter, quota, when)
  if meter.gcra then
    if meter.at < when then
      return {gcra = true, at = when, debt = math.max(0, meter.debt - (when - meter.at))}
    end
    return meter
  end
  if quota.algorithm == 'g' then
    return {gcra = true, at = when, debt = 0}
  elseif when < later(meter.start, quota.interval) then
    return meter
  elseif when < later(meter.start, quota.interval + quota.alignment) then
    return {start = later(meter.start, quota.interval), used = 0}
  end
  return {start = when, used = 0}
end

local function turn(meter, tokens, quota)
  if tokens > quota.size then
    return NEVER
  end
  meter = at(meter, quota, time)
  if meter.gcra then
    local excess = meter.debt + tokens * quota.emission - quota.size * quota.emission
    return excess <= quota.emission * TOLERANCE and meter.at or later(meter.at, math.ceil(excess))
  end
  local fits = tokens <= math.max(0, quota.size - meter.used)
  return fits and math.max(meter.start, time) or later(meter.start, quota.interval)
end

local function after(meter, tokens, when, quota)
  if when == NEVER then
    return meter
  end
  meter = at(meter, quota, when)
  if meter.gcra then
    return {gcra = true, at = meter.at, debt = meter.debt + tokens * quota.emission}
  elseif meter.used + tokens <= quota.size then
    return {start = meter.start, used = meter.used + tokens}
  end
  return {start = when, used = tokens}
end

local function remaining(meter, quota, when)
  meter = at(meter, quota, when)
  if (meter.start or meter.at) > when then
    return 0
  elseif not meter.gcra then
    return math.max(0, quota.size - meter.used)
  elseif quota.size == 0 then
    return 0
  end
  local free = (quota.size * quota.emission - meter.debt + quota.emission * TOLERANCE) / quota.emission
  return math.floor(math.max(0, free))
end

local function reset_after(meter, quota, when)
  meter = at(meter, quota, when)
  if meter.gcra then
    return math.max(0, later(meter.at, math.ceil(meter.debt)) - when)
  end
  return meter.used == 0 and 0 or math.max(0, later(meter.start, quota.interval) - when)
end

local function idle_from(meter, quota)
  if meter.gcra then
    return later(meter.at, math.ceil(meter.debt))
  end
  return later(meter.start, quota.interval + quota.alignment)
end

-- The same use under another quota. The elapsed part of an interval or a token is kept, so that callers with different
-- algorithms do not restart it: a conversion there and back changes nothing.
local function under(meter, old, new)
  if is_new(meter) or idle_from(meter, old) <= time then
    return read_meter()
  end
  meter = at(meter, old, time)
  if not meter.gcra then
    return new.algorithm == 'g' and {gcra = true, at = meter.start, debt = meter.used * new.emission} or meter
  end
  local used = meter.debt / old.emission
  if new.algorithm == 'g' then
    return {gcra = true, at = time, debt = used * new.emission}
  end
  local passed = (math.ceil(used) - used) * old.emission
  return {start = time - math.floor(passed), used = math.ceil(used)}
end

local quota = read_quota(found[2] or 'w 0 0 -')
local meter = read_meter(found[3])
-- Use cannot lie ahead: if it does, the clock was set back, and the use counts from now.
local set_back = (meter.start or meter.at) > time
if set_back then
  meter[meter.gcra and 'at' or 'start'] = time
end
local has_line = found[5] == '1'
local tail = has_line and read_meter(found[4]) or meter

local function in_line(waiter)
  local record = redis.call('HGET', waiters, waiter)
  if not record then return end
  local tokens, when, woken, give_up, live_until, to =
    string.match(record, '^(%d+) (%S+) (%d) (%S+) (%S+) (.*)$')
  return {tokens = tonumber(tokens), at = tonumber(when), woken = tonumber(woken), give_up = tonumber(give_up),
    live_until = tonumber(live_until), to = to}
end

local function write(waiter, place)
  redis.call('HSET', waiters, waiter, string.format('%.0f %.0f %d %.0f %.0f %s', place.tokens, place.at, place.woken,
    place.give_up, place.live_until, place.to))
end

local function queued()
  return has_line and redis.call('ZCARD', queue) or 0
end

-- Books due reservations. Woken waiters are remembered, in case they ask again now.
local function settle()
  if not has_line then return end
  forget(admitted)
  forget(refused)
  while true do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    local place = first and in_line(first)
    if not place or place.at > time then break end
    meter = after(meter, place.tokens, place.at, quota)
    leave(first)
    if place.woken == 1 then
      remember(admitted, first)
    end
  end
  if redis.call('EXISTS', queue) == 0 then
    tail = meter
  end
  has_line = redis.call('EXISTS', queue, admitted, refused) > 0
end

-- Assigns new reservations to the whole queue, and wakes waiters whose reservation has changed.
local function plan()
  if not has_line then
    tail = meter
    return
  end
  tail = meter
  for _, waiter in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    local place = in_line(waiter)
    if place.at == NEVER and place.live_until <= time then
      leave(waiter)
    else
      local when = turn(tail, place.tokens, quota)
      if when ~= place.at then
        place.woken = 1
        publish(place.to, string.format('rate wake %s 0 %s', waiter, key))
      end
      if (when < NEVER and when > place.give_up) or (when == NEVER and quota.size > 0) then
        leave(waiter)
        remember(refused, waiter)
      else
        place.at = when
        write(waiter, place)
        tail = after(tail, place.tokens, when, quota)
      end
    end
  end
  settle()
end

local function take_out(place)
  leave(id)
  if place.at < NEVER and queued() <= MOVES_UP then
    plan()
  else
    settle()
  end
end

-- The first waiters of a long queue get the unused reservations of cancelled ones.
local function move_up()
  local first
  while has_line do
    local waiter = redis.call('ZRANGE', queue, 0, 0)[1]
    local place = waiter and in_line(waiter)
    if not place or turn(meter, place.tokens, quota) > time then break end
    meter, first = after(meter, place.tokens, time, quota), waiter
    leave(waiter)
    remember(admitted, waiter)
    publish(place.to, string.format('rate wake %s 0 %s', waiter, key))
  end
  if first and redis.call('EXISTS', queue) == 0 then
    tail = meter
  end
end

local function save()
  local idle = math.max(idle_from(meter, quota), idle_from(tail, quota)) - time
  if not has_line and (is_new(meter) or idle <= 0) then
    redis.call('DEL', key)
    return
  end
  redis.call('HSET', key, 'kind', 'rate', 'quota', quota.words, 'meter', write_meter(meter))
  if has_line then
    redis.call('HSET', key, 'line', 1, 'tail', write_meter(tail))
  elseif found[5] then
    redis.call('HDEL', key, 'line', 'tail')
  end
  local kept = math.ceil(math.max(idle, 0) / 1000)
  if has_line then
    -- All reservations are due by then, and waiters without one ask again within seconds.
    kept = kept + MINUTE
    expire(queue, text(kept))
    expire(waiters, text(kept))
  end
  expire(key, text(kept))
end

local function saved(reply)
  move_up()
  save()
  return reply
end

local function admit(wait)
  return saved({'admitted', wait, remaining(tail, quota, time + wait), reset_after(tail, quota, time + wait)})
end

local function limit(when)
  return saved({'limited', when < NEVER and when - time or -1, remaining(tail, quota, time),
    reset_after(tail, quota, time), queued()})
end

if set_back then
  plan()
end
settle()
-- A limiter without queue and use is new.
if not has_line and idle_from(meter, quota) <= time then
  meter, tail, quota = read_meter(), read_meter(), read_quota('w 0 0 -')
end

if op == 'inspect' then
  -- Due reservations have left the queue.
  if found[5] then
    save()
  end
  if not has_line and is_new(meter) then
    return {'unknown'}
  end
  local used = math.max(0, quota.size - remaining(meter, quota, time))
  return {'inspected', quota.size, used, queued(), reset_after(meter, quota, time), -1, 0, 0}
elseif op == 'cancel' then
  if ARGV[8] == '1' then
    has_line = true
    remember(refused, id)
  end
  local place = in_line(id)
  if place then
    take_out(place)
  end
  return saved({'cancelled'})
end

local tokens, give_up = tonumber(ARGV[5]), time + tonumber(ARGV[7])
local live_until = live and time + live * 1000 or NEVER

if has_line then
  if remembers(admitted, id) then
    return admit(0)
  elseif remembers(refused, id) then
    return limit(turn(tail, tokens, quota))
  end
  local place = in_line(id)
  if place then
    if (place.at < NEVER and place.at > give_up) or (place.at == NEVER and not live) then
      take_out(place)
      return limit(place.at)
    end
    place.give_up = give_up
    place.live_until = live and live_until or place.live_until
    write(id, place)
    if place.at == NEVER then
      local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
      return saved({'queued', redis.call('ZSCORE', queue, id) - first})
    end
    return admit(place.at - time)
  end
end

if ARGV[6] ~= quota.words then
  local new = read_quota(ARGV[6])
  meter = under(meter, quota, new)
  quota = new
  plan()
end

local when = turn(tail, tokens, quota)
if when <= time and queued() == 0 then
  meter = after(tail, tokens, when, quota)
  tail = meter
  return admit(0)
end
if (when < NEVER and when > give_up) or (when == NEVER and (not live or quota.size > 0)) then
  return limit(when)
end
has_line = true
tail = after(tail, tokens, when, quota)
local ahead = join(string.format('%.0f %.0f 0 %.0f %.0f %s', tokens, when, give_up, live_until, channel), MINUTE)
if when == NEVER then
  return saved({'queued', ahead})
end
return admit(when - time)
