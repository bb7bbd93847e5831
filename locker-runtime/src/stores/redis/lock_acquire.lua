-- Takes the lock, or a place in its queue. A script, because looking at holder, queue and tombstone and taking the
-- lock must be one step.
--
-- KEYS     as in lock.lua
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  'fair' or 'unfair': how to wait; 'no': do not
-- ARGV[4]  for how many milliseconds the place in the queue is kept
-- ARGV[5]  channel of the caller's process
--
-- 'granted FENCE', followed by 1 if it was granted in the queue: there is a message about it, which may come later
-- | {'queued', who is right before: the last in line, the holder where nobody waits, '' if that is not known, AHEAD,
--    MILLISECONDS-THE-HOLDER-HAS-LEFT (or whoever was woken has to come), 1-IF-FOREIGNERS-TAKE-PART}
-- | 'busy MILLISECONDS-LEFT' | 'cancelled'

local lease, mode, live = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local function granted_in_queue(fence)
  return string.format('granted %.0f 1', fence)
end

local seen = redis.call('MGET', lock, record, tombstone)
local holder, recorded = seen[1], seen[2]
if holder == id then
  local fence = fence_of(id, recorded)
  if not fence then
    fence = fence_after(recorded, now())
    set(record, string.format('%.0f %s', fence, id), lease + MINUTE)
  end
  return granted_in_queue(fence)
end
if seen[3] then
  return 'cancelled'
end
-- Before the queue is touched, which may be that of something else.
if not holder and redis.call('EXISTS', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds something that is no lock')
end

local function grant(time)
  local fence = fence_after(recorded, time)
  hold(id, fence, lease, lease)
  return string.format('granted %.0f', fence)
end

-- Only somebody who may be overtaken himself may overtake, and never a waiter who keeps its turn.
local function overtakes()
  local first, _, _, first_mode = head()
  return not first or (mode == 'unfair' and first_mode ~= 'fair')
end

local time = now()
if redis.call('EXISTS', queue) == 1 then
  if not holder and not overtakes() then
    pump(time)
    holder, recorded = redis.call('GET', lock), redis.call('GET', record)
    if holder == id then
      return granted_in_queue(fence_of(id, recorded))
    end
  end
  if not holder and (overtakes() or head() == id) then
    leave(id)
    return grant(time)
  end
elseif not holder then
  return grant(time)
end

if holder and not fence_of(holder, recorded) then
  set(foreign, 1, MINUTE)
end

if mode == 'no' then
  leave(id)
  return 'busy ' .. left(lock)
end

local ticket = redis.call('ZSCORE', queue, id)
local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
local before, is_foreign = '', redis.call('EXISTS', foreign)
if not ticket then
  ticket = (last[2] or 0) + 1
  redis.call('ZADD', queue, ticket, id)
  if mode == 'fair' and is_foreign == 0 then
    before = last[1] or holder
  end
end
redis.call('HSET', waiters, id, string.format('%.0f %.0f %s %s', lease, time + live * 1000, mode, ARGV[5]))
if not last[2] or left(queue) < live then
  expire(queue, live)
  expire(waiters, live)
end
local ahead = ticket - redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
-- A free one is kept for the one at the head, who was woken.
return {'queued', before, ahead, holder and left(lock) or GRANT_WINDOW, is_foreign}
