-- The semaphore. A script, because reading holders and queue and taking permits must be one step.
--
-- K        size of the last acquire; taken: permits held; silent: the channels of processes
--          that have let a grant or a wake-up pass, each between blanks;
--          h:<name> -> "<fence> <permits> <since> <attempt> <channel of the attempt until it confirms, then 0>"
-- {K}:w    id -> "<lease> <live until> <mode> <permits> <name> <time of its recheck> <channel>"
-- {K}:a    holders' names by the end of their holds   {K}:b  attempt -> name, if they differ,
--          and =<name> -> other attempts that waited for the name and share the hold
-- {K}:z    refused ids
-- KEYS[7]  the last fence of all names, as in lock.lua
-- ARGV[5]  lease in milliseconds, 'inf': without end; for an eviction the highest fence to end
-- ARGV[6]  'fair' or 'unfair': how to wait   ARGV[7]  size   ARGV[8]  permits
-- ARGV[9]  the hold's name; the attempt for a renewal or release by name, which have the name in ARGV[2]
-- ARGV[10] 1: refuse this id from now on, a copy of its acquire may still arrive
-- ARGV[11] 1: refuse this attempt from now on, an earlier copy of it may still arrive
--
-- {'granted', fence}
-- | {'queued', ahead, microseconds until the next hold or the time of the first waiter ends, -1: never}
-- | {'busy', microseconds} | {'released'} | {'not_held'} | {'renewed', fence} | {'lost'} | {'cancelled'}
-- | {'wrong_kind'} | {'closed', milliseconds for which nothing is granted}
-- each followed by 'more' if there are more dead waiters to remove

local ends, names, tombstones, last_fence = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local lease, mode, name = tonumber(ARGV[5]), ARGV[6], ARGV[9]
-- Not an attempt, because attempts are random.
local NOBODY = '0'
local GRANT_WINDOW, FOR_EVER = 2000, 100 * 365 * DAY

local found = redis.call('HMGET', key, 'kind', 'size', 'taken', 'silent')
if not is_of('semaphore', found[1]) then
  return {'wrong_kind'}
end
local size, taken = tonumber(found[2] or 0), tonumber(found[3] or 0)
-- A number from 2^53 on is not of this crate, nor is anything but a number.
local fence = redis.pcall('GET', last_fence)
fence = type(fence) == 'string' and tonumber(string.match(fence, '^%d+')) or 0
fence = fence < 2 ^ 53 and fence or 0
local silent = found[4] or ' '
-- Whether a hold has ended in this call, or will end before the keys expire.
local ended = false
-- The maximum of waiters that one call removes or serves, and whether some were left for the next call.
local PURGE = 1000
local room, more = PURGE, false

local function holder(of)
  local record = redis.call('HGET', key, 'h:' .. of)
  if not record then return end
  local held_fence, permits, since, attempt, unconfirmed = string.match(record, '^(%d+) (%d+) (%d+) (%x+) (%S+)$')
  return tonumber(held_fence), tonumber(permits), since, attempt, unconfirmed
end

local function write(of, held_fence, permits, since, attempt, unconfirmed)
  redis.call('HSET', key, 'h:' .. of,
    string.format('%.0f %.0f %s %s %s', held_fence, permits, since, attempt, unconfirmed))
end

local function is_silent(of)
  return string.find(silent, ' ' .. of .. ' ', 1, true)
end

-- Passes over the waiters of a process until one of them asks again. One that asks now is not silent.
local function silence(of)
  local asks = op == 'acquire' and of == channel
  if not asks and not is_silent(of) and redis.call('EXISTS', queue) == 1 then
    silent = silent .. of .. ' '
    redis.call('HSET', key, 'silent', silent)
  end
end

local function hear(of)
  local from, to = is_silent(of)
  if from then
    silent = string.sub(silent, 1, from) .. string.sub(silent, to + 1)
    redis.call('HSET', key, 'silent', silent)
  end
end

local function finish(of)
  local _, permits, _, attempt = holder(of)
  redis.call('ZREM', ends, of)
  if not permits then return end
  redis.call('HDEL', key, 'h:' .. of)
  if of ~= attempt then
    redis.call('HDEL', names, attempt)
  end
  local others = redis.call('HGET', names, '=' .. of)
  if others then
    redis.call('HDEL', names, '=' .. of)
    for other in string.gmatch(others, '%x+') do
      redis.call('HDEL', names, other)
    end
  end
  taken, ended = taken - permits, true
  redis.call('HSET', key, 'taken', text(taken))
  return true
end

-- Expiry of the keys in milliseconds, longer than that of the hold.
local function kept(milliseconds)
  return math.min(milliseconds, FOR_EVER) + MINUTE
end

-- After the end of a hold without expiry, the keys live as long as the remaining holds.
local function keep_no_longer()
  local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  if not last then return end
  local milliseconds = math.max(kept(math.ceil((tonumber(last) - time) / 1000)), left(queue))
  if left(key) <= milliseconds then return end
  for _, each in ipairs({key, ends, names}) do
    expire(each, milliseconds)
  end
end

-- An idle semaphore leaves nothing.
local function done(reply)
  if taken == 0 and found[1] and redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', key, ends, names)
  elseif taken == 0 then
    expire(key, math.max(MINUTE, left(queue)))
  elseif ended then
    keep_no_longer()
  end
  if more then
    reply[#reply + 1] = 'more'
  end
  return reply
end

-- All keys, because holds that outlive the key of their ends would never end. Returns whether they lived longer.
local function keep_all(milliseconds)
  local longest = math.max(milliseconds, left(key))
  for _, each in ipairs({key, ends, names}) do
    keep(each, longest)
  end
  return longest > milliseconds
end

local function hold_until(of, milliseconds)
  redis.call('ZADD', ends, milliseconds == math.huge and 'inf' or text(time + milliseconds * 1000), of)
  ended = keep_all(kept(milliseconds)) or ended
end

local function grant(attempt, of, permits, milliseconds, unconfirmed)
  fence = math.max(fence + 1, time)
  taken = taken + permits
  redis.call('HSET', key, 'kind', 'semaphore', 'size', text(size), 'taken', text(taken))
  redis.call('SET', last_fence, text(fence))
  write(of, fence, permits, text(time), attempt, unconfirmed)
  if of ~= attempt then
    redis.call('HSET', names, attempt, of)
  end
  hold_until(of, milliseconds)
end

-- Records attempts that waited for a held name: they ask once more, and are then not new.
local function know(of, attempts)
  local others = redis.call('HGET', names, '=' .. of) or ''
  for _, attempt in ipairs(attempts) do
    redis.call('HSET', names, attempt, of)
  end
  redis.call('HSET', names, '=' .. of, others .. table.concat(attempts, ' ') .. ' ')
  keep(names, left(key))
end

local function next_end()
  local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2]
  first = first and tonumber(first)
  return first and first < math.huge and first - time or nil
end

local function place(waiter_lease, live_until, how, permits, of, looks_at, to)
  return string.format('%s %.0f %s %.0f %s %.0f %s', waiter_lease, live_until, how, permits, of, looks_at, to)
end

local function head()
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  if not first then return end
  local record = redis.call('HGET', waiters, first) or '0 0 fair 1 0 0 '
  return first, string.match(record, '^(%S+) (%d+) (%a+) (%d+) (%x+) (%d+) (.*)$')
end

-- A free lock has only its queue.
if not found[1] then
  local first, of_semaphore = head()
  if first and not of_semaphore then
    return {'wrong_kind'}
  end
end

-- More permits than the size.
local function never_fits(permits)
  return size > 0 and permits > size
end

-- Serves live waiters at the head while there are permits. An unfair waiter is only woken, and so is one that never
-- fits: its next request is refused, so that it does not resize. Waiters whose names are held go into `served`.
local function serve(served)
  local gone = {}
  while room > 0 do
    room = room - 1
    local waiter, waiter_lease, live_until, how, permits, of, looks_at, to = head()
    if not waiter then return end
    permits = tonumber(permits)
    if tonumber(live_until) <= time or gone[to] or is_silent(to) then
      leave(waiter)
      if how == 'woken' and tonumber(live_until) <= time then
        silence(to)
      end
    elseif holder(of) then
      leave(waiter)
      served[of] = served[of] or {}
      table.insert(served[of], waiter)
      tell('wake', waiter, to)
    elseif never_fits(permits) then
      leave(waiter)
      remember(tombstones, waiter)
      tell('wake', waiter, to)
    elseif taken + permits > size then
      return
    elseif closed() then
      tell('look', waiter, to, text(closed()))
      return
    elseif how == 'fair' then
      leave(waiter)
      if tell('granted', waiter, to, text(math.max(fence + 1, time))) > 0 then
        grant(waiter, of, permits, math.min(tonumber(waiter_lease), GRANT_WINDOW), to)
      else
        gone[to] = true
      end
    elseif tell('wake', waiter, to) > 0 then
      -- It must ask within the grant window: its process may be paused.
      local window = math.min(tonumber(live_until), time + GRANT_WINDOW * 1000)
      redis.call('HSET', waiters, waiter, place(waiter_lease, window, 'woken', permits, of, looks_at, to))
      return
    else
      leave(waiter)
      gone[to] = true
    end
  end
  more = redis.call('EXISTS', queue) == 1
end

-- Writing the list once per waiter would cost the square of the queue.
local function grant_waiters()
  local served = {}
  serve(served)
  for of, attempts in pairs(served) do
    know(of, attempts)
  end
end

local function closed_reply()
  return {'closed', math.ceil(closed() / 1000)}
end

local held_name = op == 'acquire' and name or op == 'renew' and id
local held_until = held_name and closed() and tonumber(redis.call('ZSCORE', ends, held_name) or 0) or 0
if held_until > time and op == 'acquire' then
  return closed_reply()
elseif held_until > time and is_doubtful(held_until - time) then
  return {'lost'}
end

if op == 'acquire' then
  hear(channel)
end
for _, over in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', text(time))) do
  local _, _, _, _, unconfirmed = holder(over)
  finish(over)
  if unconfirmed and unconfirmed ~= '0' then
    silence(unconfirmed)
  end
end
forget(tombstones)
if ARGV[10] == '1' then
  remember(tombstones, id)
end

-- Holds, queues or is refused; also returns whether it has left the queue.
local function take(overtakes)
  local held, held_permits, since, attempt, unconfirmed = holder(name)
  if held then
    -- A hold shared by attempts belongs to none of them: it does not end when one of them gives up.
    if attempt ~= id then
      if redis.call('HGET', names, attempt) then
        know(name, {attempt})
      end
      attempt = NOBODY
    end
    write(name, held, held_permits, since, attempt, 0)
    if unconfirmed ~= '0' then
      hold_until(name, lease)
    end
    return {'granted', held}, leave(id)
  end
  local permits = tonumber(ARGV[8])
  if never_fits(permits) then
    remember(tombstones, id)
    return {'cancelled'}, leave(id)
  end
  if taken + permits <= size and not closed() and (overtakes or (head() or id) == id) then
    grant(id, name, permits, lease, 0)
    return {'granted', fence}, leave(id)
  end
  if not live then
    local is_free = closed() and taken + permits <= size
    return is_free and closed_reply() or {'busy', next_end() or 0}, leave(id)
  end
  redis.call('HSET', key, 'kind', 'semaphore', 'size', text(size))
  keep_all(live)
  local ends_in = next_end()
  local looks_at = time + math.min(math.floor(live * 1000 / 3), ends_in or math.huge)
  local record = place(ARGV[5], time + live * 1000, mode, permits, name, looks_at, channel)
  local first, _, first_lives_until
  if not more then
    first, _, first_lives_until = head()
  end
  local frees_in = math.min(ends_in or math.huge, closed() or math.huge,
    first and first ~= id and math.max(tonumber(first_lives_until) - time, 0) or math.huge)
  return {'queued', join(record, live), frees_in < math.huge and frees_in or -1}
end

-- Only an unfair caller may overtake, and only unfair waiters.
local function may_be_overtaken()
  if live and mode == 'unfair' then
    local first, _, _, first_mode = head()
    return not first or first_mode ~= 'fair'
  end
end

local function acquire()
  if remembers(tombstones, id) then
    local held = holder(name)
    return held and {'granted', held} or {'cancelled'}
  end
  -- If the key was deleted, a waiter restores the size.
  if not found[1] then
    size = tonumber(ARGV[7])
  -- A waiter that was granted permits asks again to confirm, and must not resize.
  elseif not redis.call('ZSCORE', queue, id) and (id == name or not redis.call('HGET', names, id)) then
    size = tonumber(ARGV[7])
    redis.call('HSET', key, 'size', text(size))
  end
  local overtakes = may_be_overtaken()
  if not overtakes then
    grant_waiters()
    overtakes = may_be_overtaken()
  end
  local reply, has_left = take(overtakes)
  -- Permits that remain after overtaking or resizing are for the waiters.
  if overtakes or has_left then
    grant_waiters()
  end
  return reply
end

local function renew()
  local held, permits, since, attempt = holder(id)
  if is_late(tombstones, name, ARGV[11]) then
    return held and {'renewed', held} or {'lost'}
  elseif held then
    write(id, held, permits, since, attempt, 0)
    hold_until(id, lease)
    return {'renewed', held}
  end
  -- A waiter with an old grant does not get a new one here, which would have another fence.
  if not redis.call('ZSCORE', queue, id) then
    grant_waiters()
  end
  return {'lost'}
end

local function release()
  if is_late(tombstones, name, ARGV[11]) or not finish(id) then
    return {'not_held'}
  end
  grant_waiters()
  return {'released'}
end

local function cancel()
  leave(id)
  local of = redis.call('HGET', names, id) or id
  local _, _, _, attempt = holder(of)
  if attempt == id then
    finish(of)
  end
  grant_waiters()
  return {'cancelled'}
end

local function evict()
  local any, anybody = false, string.match(id, '^0+$')
  for _, of in ipairs(redis.call('ZRANGE', ends, 0, -1)) do
    local held, _, _, attempt = holder(of)
    if held and held <= tonumber(ARGV[5]) and (anybody or attempt == id) then
      any = finish(of)
    end
  end
  if not any then
    return {'not_held'}
  end
  grant_waiters()
  return {'released'}
end

local function inspect()
  local waiting = redis.call('ZCARD', queue)
  if taken == 0 and waiting == 0 then
    return {'unknown'}
  end
  local answer, holders = {'inspected', size, taken, waiting, -1, -1, 0, 0}, {}
  for _, of in ipairs(redis.call('ZRANGE', ends, 0, -1)) do
    local held_fence, permits, since = holder(of)
    local till = tonumber(redis.call('ZSCORE', ends, of))
    for _, number in ipairs({time - tonumber(since), till < math.huge and till - time or -1, held_fence, permits}) do
      answer[#answer + 1] = number
    end
    holders[#holders + 1] = of
  end
  answer[#answer + 1] = table.concat(holders, ' ')
  return answer
end

-- The first waiter gets an earlier recheck if a hold now ends before the planned one.
local function remind()
  local waiter, waiter_lease, live_until, how, permits, of, looks_at, to = head()
  local ends_in = waiter and next_end()
  if ends_in and time + ends_in < tonumber(looks_at) then
    redis.call('HSET', waiters, waiter, place(waiter_lease, live_until, how, permits, of, time + ends_in, to))
    tell('look', waiter, to, text(ends_in))
  end
end

local operations = {acquire = acquire, renew = renew, release = release, cancel = cancel, evict = evict,
  inspect = inspect}
local reply = operations[op]()
if op ~= 'inspect' and not more then
  remind()
end
return done(reply)
