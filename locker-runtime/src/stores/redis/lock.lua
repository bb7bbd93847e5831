-- What the scripts of the exclusive lock share: its keys, its queue, handing over.
--
-- KEYS[1]  K       the holder's id, expiring with the lease: the layout of `SET K id NX PX lease`
-- KEYS[2]  {K}:f   "<last fence> <id it was granted to>", for a minute longer than the lease
-- KEYS[3]  {K}:q   waiters' ids by ticket
-- KEYS[4]  {K}:w   id -> "<lease> <live until> <mode> <channel>"
-- KEYS[5]  {K}:y   a holder was seen within the last minute that is none of ours
-- KEYS[6]  {K}:x:id  this id is refused
-- ARGV[1]  id

local lock, record, queue, waiters, foreign, tombstone = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id = ARGV[1]

local GRANT_WINDOW, MINUTE = 2000, 60000

local function hold(holder, fence, milliseconds, lease)
  set(lock, holder, milliseconds)
  set(record, string.format('%.0f %s', fence, holder), lease + MINUTE)
end

-- A fence that was lost with the data is followed by a higher one: the time is ahead of all of them.
local function fence_after(recorded, time)
  local last = recorded and tonumber(string.match(recorded, '^%d+')) or 0
  return math.max(last + 1, time)
end

-- The fence that was recorded for this holder; nil for a holder that is none of ours.
local function fence_of(holder, recorded)
  if recorded and string.sub(recorded, -#holder - 1) == ' ' .. holder then
    return tonumber(string.match(recorded, '^%d+'))
  end
end

local function leave(waiter)
  redis.call('ZREM', queue, waiter)
  redis.call('HDEL', waiters, waiter)
end

local function head()
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  if not first then return end
  local waiter = redis.call('HGET', waiters, first)
  if not waiter then return first, 0, 0 end
  local lease, live_until, mode, channel = string.match(waiter, '^(%d+) (%d+) (%a+) (.*)$')
  return first, tonumber(lease), tonumber(live_until), mode, channel
end

-- Whom pump has given the lock: id, fence, channel of the process.
local next_holder

-- Gives the free lock to the first living waiter; one that may be overtaken is only woken. A waiter whose
-- process takes no messages is gone. Whoever calls it looks at the lock again: it may have been granted to him.
--
-- Leaving comes before setting: a script that has removed something may set at maxmemory.
local function pump(time)
  while true do
    local waiter, lease, live_until, mode, channel = head()
    if not waiter then return end
    if live_until <= time then
      leave(waiter)
    elseif mode == 'fair' then
      leave(waiter)
      local fence = fence_after(redis.call('GET', record), time)
      if publish(channel, string.format('lock granted %s %.0f %s', waiter, fence, lock)) > 0 then
        next_holder = {waiter, string.format('%.0f', fence), channel}
        return hold(waiter, fence, math.min(lease, GRANT_WINDOW), lease)
      end
    elseif publish(channel, string.format('lock wake %s 0 %s', waiter, lock)) > 0 then
      -- It has the grant window to come.
      live_until = math.min(live_until, time + GRANT_WINDOW * 1000)
      redis.call('HSET', waiters, waiter, string.format('%.0f %.0f %s %s', lease, live_until, mode, channel))
      return
    else
      leave(waiter)
    end
  end
end

-- After a hold has ended. Where others take part who cannot queue (`SET NX` in a loop), the lock stays free until
-- the next waiter asks again, so that they get their turns.
local function hand_over()
  if redis.call('EXISTS', queue) == 1 and redis.call('EXISTS', foreign) == 0 then
    pump(now())
  end
end

-- A write that changes nothing lets the next one pass at maxmemory.
local function bury()
  redis.call('ZREM', queue, '')
  set(tombstone, 1, MINUTE, 'NX')
end
