-- The shared part of the lock scripts: keys, queue, and the grant to the next waiters.
--
-- KEYS[1]  K       "<holder's id> <fence>", expiring with the lease, as `SET K .. NX PX lease` leaves it; then a sign
--                  if only the scripts with this part may end the hold: '+' once others wait, '*' if KEYS[4] says
--                  more about it. Anything else is of a foreign client
-- KEYS[2]  {K}:q   waiters' ids by ticket, from 1 on; and refused ids behind an x, by the end of their minute,
--                  negative. As long as the key is there, no acquire is granted without this part
-- KEYS[3]  the last fence of all names of this prefix, in a cluster of those in this slot; it never expires
-- KEYS[4]  {K}:f   of a hold with the sign '*', and for a minute longer than its lease if it ends by itself: for a run
--                  "<last fence> <members> <channel> <id>", with a ? before the channel until the run is confirmed; for
--                  a hold with a name, which is then the holder's id, "<fence> <attempt> <id>" until another
--                  attempt gets the same hold
-- KEYS[5]  {K}:w   id -> "<lease> <live until> <mode> <channel>"; mode: 'fair', 'unfair', 'named', or 'woken' and
--                  'called' for an unfair one and a named one that was woken; and '!' -> the channels of silent
--                  processes, each between blanks
-- KEYS[6]  {K}:y   the lock had a foreign holder within the last minute
-- KEYS[7]  {K}:p   channels of processes, by the end of their waiters
-- ARGV[1]  id
--
-- A run is a grant to waiters of one process that follow each other in the queue, each lease at least as long as the
-- one before. Its members are "<id>:<lease>,<id>:<lease>,..". Their fences are consecutive, and the last one is
-- recorded. The process passes the lock on from member to member, and ends the run. No request of a member may end a
-- run of several. Its id is therefore the first member's with another version digit, which no attempt has.

local lock, queue, last_fence, record, waiters, foreign = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local processes, id = KEYS[7], ARGV[1]

local GRANT_WINDOW, MINUTE = 2000, 60000
-- The maximum of members in a run, and of dead waiters that one script removes.
local RUN, PURGE = 32, 1000
local WOKEN = {unfair = 'woken', named = 'called'}

-- The time is ahead of all fences, so that a fence lost with the data is followed by a higher one. A number from 2^53
-- on is not of this crate: none that Lua counts could rise above it. Neither is anything but a number.
local function next_fence(time)
  local found = redis.pcall('GET', last_fence)
  local last = type(found) == 'string' and tonumber(string.match(found, '^%d+')) or 0
  return math.max(last < 2 ^ 53 and last + 1 or 0, time)
end

local function hold(holder, fence, sign, ...)
  redis.call('SET', lock, string.format('%s %.0f%s', holder, fence, sign), ...)
end

-- The holder, its fence and its sign. A foreign holder has only its text.
local function read_hold(found)
  local holder, fence, sign = string.match(found or '', '^(%x+) (%d+) ?([+*]?)$')
  if holder and #holder == 32 then
    return holder, tonumber(fence), sign
  end
  return found
end

-- Places in the queue; refused ids have none.
local function place(waiter)
  local ticket = redis.call('ZSCORE', queue, waiter)
  return ticket and tonumber(ticket) > 0 and ticket
end

local function count_waiters()
  return redis.call('ZCOUNT', queue, 0, '+inf')
end

local function is_refused(attempt, time)
  local till = redis.call('ZSCORE', queue, 'x' .. attempt)
  return till and -tonumber(till) > time
end

-- The members and the channel of the holder, if it is a run.
local function run_of(holder, recorded)
  if holder and recorded then
    local members, channel, run = string.match(recorded, '^%d+ (%S+) %??(%S+) (%S+)$')
    if run == holder then return members, channel end
  end
end

-- The attempt that was granted the hold under the holder's name, if no other attempt has got the same hold.
local function attempt_of(holder, recorded)
  local attempt, name = string.match(recorded or '', '^%d+ (%x+) (%x+)$')
  return name == holder and attempt
end

-- The record, unless another client has written something else there. It may be of an earlier hold.
local function read_record()
  local recorded = redis.pcall('GET', record)
  return type(recorded) == 'string' and recorded or nil
end

-- The record of the hold with this sign.
local function record_of(sign)
  return sign == '*' and read_record() or nil
end

-- The channels of processes that have let a grant or a wake-up pass: a host that is gone, or a process that is stopped.
-- Their waiters that come up are removed until one of them asks, so that such a process delays the others only once.
-- They join again at the end.
local silent
-- The channel of the process that asks, which is not silent.
local asking

-- Fails if a helper key has another type, before anything is changed. Returns how many wait.
local function check_helpers()
  silent = redis.call('HGET', waiters, '!') or ' '
  local waiting = count_waiters()
  -- Refused ids keep the queue longer than its waiters, and waiters longer than those. A removal without need would
  -- allow writes at maxmemory.
  if waiting > 0 and redis.call('EXISTS', waiters) == 0 then
    redis.call('ZREMRANGEBYSCORE', queue, 0, '+inf')
    waiting = 0
  elseif waiting == 0 then
    local over = string.format('(%.0f', -now())
    if redis.call('ZCOUNT', queue, over, '(0') > 0 then
      redis.call('ZREMRANGEBYSCORE', queue, over, '(0')
    end
  end
  return waiting
end

local function is_silent(channel)
  return string.find(silent, ' ' .. (channel or '') .. ' ', 1, true)
end

-- Passes over the waiters of a process. A removal without effect allows the write at maxmemory.
local function silence(channel)
  redis.call('ZREM', queue, '')
  if channel ~= asking and not is_silent(channel) and count_waiters() > 0 then
    silent = silent .. channel .. ' '
    redis.call('HSET', waiters, '!', silent)
  end
end

local function hear(channel)
  asking = channel
  local from, to = is_silent(channel)
  if from then
    silent = string.sub(silent, 1, from) .. string.sub(silent, to + 1)
    redis.call('HDEL', waiters, '!')
    if silent ~= ' ' then
      redis.call('HSET', waiters, '!', silent)
    end
  end
end

-- The hold has ended by itself. If it was granted to a run that has not confirmed it, the process is silent.
local function note_silence(recorded)
  local channel = string.match(recorded or '', '^%d+ %S+ %?(%S+) %S+$')
  if channel then
    silence(channel)
  end
  if recorded then
    redis.call('DEL', record)
  end
end

-- Ends the hold because of a request: a run that is not confirmed says nothing about its process any more.
-- The removal allows the write at maxmemory.
local function end_hold()
  redis.call('DEL', lock, record)
end

local function leave(...)
  redis.call('ZREM', queue, ...)
  redis.call('HDEL', waiters, ...)
end

local function read(waiter)
  local lease, live_until, mode, channel = string.match(waiter or '', '^(%d+) (%d+) (%a+) (%S+)$')
  return {lease = tonumber(lease or 0), live_until = tonumber(live_until or 0), mode = mode, channel = channel}
end

local function head()
  local first, ticket = unpack(redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  return first, first and read(redis.call('HGET', waiters, first)), ticket
end

-- A waiter is alive until its own time is over, or while its process rechecks its waiters. A woken waiter has only its
-- own time.
local function is_alive(waiter, time)
  return waiter.live_until > time or waiter.channel and waiter.mode ~= 'woken' and waiter.mode ~= 'called'
    and tonumber(redis.call('ZSCORE', processes, waiter.channel) or 0) > time
end

-- 1 if dead waiters were left for the next call.
local more = 0

-- Grants the free lock to the first live waiter and to those of its process right behind it. An unfair waiter and one
-- with a name are only woken. A waiter whose process receives no messages is dead. The caller must read the lock again:
-- it may hold it now.
--
-- Removal comes before SET: a script that has removed something may write at maxmemory.
local function grant_waiters(time, is_ended)
  if not silent then check_helpers() end
  if not is_ended then note_silence(read_record()) end
  local gone, purged = {}, 0
  local most = redis.call('EXISTS', foreign) == 1 and 1 or RUN
  while purged <= PURGE - RUN do
    local ids = redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'LIMIT', 0, RUN)
    if not ids[1] then
      if silent ~= ' ' then redis.call('HDEL', waiters, '!') end
      return
    end
    local found, at, first = redis.call('HMGET', waiters, unpack(ids)), 0, nil
    repeat
      at = at + 1
      first = ids[at] and read(found[at])
      local lives = first and is_alive(first, time)
      if first and not lives and (first.mode == 'woken' or first.mode == 'called') then
        silence(first.channel)
      end
    until not first or lives and not gone[first.channel or ''] and not is_silent(first.channel)
    if at > 1 then
      leave(unpack(ids, 1, at - 1))
      purged = purged + at - 1
    end
    if first and closed() then
      publish(first.channel, string.format('lock look %s %.0f %s', ids[at], closed(), lock))
      return
    end
    if first and first.mode == 'fair' then
      local members, last, lease = {string.format('%s:%.0f', ids[at], first.lease)}, at, first.lease
      while #members < most and ids[last + 1] do
        local other = read(found[last + 1])
        if other.mode ~= 'fair' or other.channel ~= first.channel or not is_alive(other, time)
          or other.lease < lease then break end
        last, lease = last + 1, other.lease
        members[#members + 1] = string.format('%s:%.0f', ids[last], other.lease)
      end
      leave(unpack(ids, at, last))
      local run = #members == 1 and ids[at] or string.sub(ids[at], 1, 12) .. '8' .. string.sub(ids[at], 14)
      local fence = string.format('%.0f', next_fence(time) + #members - 1)
      members = table.concat(members, ',')
      if publish(first.channel, string.format('lock run %s %s %s', members, fence, lock)) > 0 then
        hold(run, fence, ' *', 'PX', math.min(first.lease, GRANT_WINDOW))
        redis.call('SET', last_fence, fence)
        set(record, string.format('%s %s ?%s %s', fence, members, first.channel, run), first.lease + MINUTE)
        return
      end
      gone[first.channel], purged = true, purged + last - at + 1
    elseif first then
      if publish(first.channel, string.format('lock wake %s 0 %s', ids[at], lock)) > 0 then
        -- It has the grant window to acquire.
        local live_until = math.min(first.live_until, time + GRANT_WINDOW * 1000)
        redis.call('HSET', waiters, ids[at],
          string.format('%.0f %.0f %s %s', first.lease, live_until, WOKEN[first.mode] or first.mode, first.channel))
        return
      end
      gone[first.channel] = true
    end
  end
  more = math.min(count_waiters(), 1)
end

-- After the end of a hold. If foreign clients use the lock (`SET NX` in a loop), it stays free until the next waiter
-- asks again, so that they get a chance.
local function hand_over(is_ended)
  if count_waiters() > 0 and redis.call('EXISTS', foreign) == 0 then
    grant_waiters(now(), is_ended)
  end
end

-- Refuses an id for a minute. A write without effect allows the next one at maxmemory.
local function refuse(attempt)
  local time = now()
  redis.call('ZREMRANGEBYSCORE', queue, string.format('%.0f', -time), '(0')
  redis.call('ZREM', queue, '')
  redis.call('ZADD', queue, 'NX', string.format('%.0f', -time - MINUTE * 1000), 'x' .. attempt)
  if left(queue) < MINUTE then
    expire(queue, MINUTE)
  end
end

-- Milliseconds until the hold ends. A free lock is kept for its head, which was woken; if dead waiters are left, the
-- caller asks again.
local function held_for(holder, time)
  if holder then return left(lock) end
  if more == 1 then return 0 end
  if closed() then return math.ceil(closed() / 1000) end
  local first, waiter = head()
  return math.min(first and math.max(math.ceil((waiter.live_until - time) / 1000), 0) or GRANT_WINDOW, GRANT_WINDOW)
end

-- The reply to an acquire that may be granted later.
local function closed_reply()
  return string.format('closed %.0f', math.ceil(closed() / 1000))
end

-- A reply, followed by 1 if there are more dead waiters to remove.
local function answer(word)
  return more == 1 and word .. ' 1' or word
end
