-- Takes the lock, or a place in its queue. A script, because reading holder, queue and tombstone and taking the lock
-- must be one step.
--
-- KEYS     as in lock.lua
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  'fair', 'unfair' or 'named': how to wait; 'no': do not wait
-- ARGV[4]  milliseconds for which the place in the queue is kept
-- ARGV[5]  channel of the caller's process
-- ARGV[6]  1: the process has passed over this member of the run, which queues again; may be missing
-- ARGV[7]  the name of the hold, if it is not the id; may be missing
--
-- 'granted FENCE'
-- | {'run', its members, its last FENCE}: the id is a member of the run that holds the lock; a message follows
-- | {'queued', AHEAD, MILLISECONDS-LEFT of the holder or a woken waiter, 1-IF-FOREIGN clients use the lock}
-- | 'busy MILLISECONDS-LEFT' | 'cancelled' | 'closed MILLISECONDS' for which nothing is granted

local lease, mode, live = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local name = ARGV[7] or id

local seen = redis.call('MGET', lock, record, tombstone)
local holder, recorded = seen[1], seen[2]

local function run_answer()
  local members = run_of(holder, recorded)
  if members and ARGV[6] ~= '1' and string.find(members, id .. ':', 1, true) then
    return {'run', members, fence_of(holder, recorded)}
  end
end

-- The former master may have ended the hold.
if closed() and (holder == name or run_answer()) then
  return closed_reply()
end
if holder == name and ARGV[6] ~= '1' then
  local fence = fence_of(name, recorded)
  -- A hold shared by attempts belongs to none of them: it does not end when one of them gives up.
  local is_shared = name ~= id and not seen[3] and (attempt_of(name, recorded) or id) ~= id
  if name ~= id and not seen[3] then
    leave(id)
  end
  if not fence or is_shared then
    fence = fence or fence_after(recorded, now())
    set(record, string.format('%.0f %s', fence, name), math.max(lease, left(lock)) + MINUTE)
  end
  return run_answer() or string.format('granted %.0f', fence)
end
if seen[3] then
  return 'cancelled'
end
local run = run_answer()
if run then
  return run
end
-- Before the queue is touched, which may belong to other data.
if not holder and redis.call('EXISTS', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds something that is no lock')
end

local function grant(time)
  local fence = string.format('%.0f', fence_after(recorded, time))
  set(lock, name, lease)
  set(record, fence .. ' ' .. (name == id and id or id .. ' ' .. name), lease + MINUTE)
  return 'granted ' .. fence
end

-- Only an unfair caller may overtake, and only unfair waiters.
local function overtakes()
  local first, waiter = head()
  return not first or (mode == 'unfair' and (waiter.mode == 'unfair' or waiter.mode == 'woken'))
end

local time, queued = now(), check_helpers()
hear(ARGV[5])
if not holder then
  note_silence(recorded)
end
if queued > 0 then
  if not holder and not overtakes() then
    grant_waiters(time)
    holder, recorded = redis.call('GET', lock), read_record()
    run = run_answer()
    if run then
      return run
    end
  end
  if not holder and not closed() and (overtakes() or head() == id) then
    leave(id)
    return grant(time)
  end
elseif not holder and not closed() then
  return grant(time)
end

if holder and not fence_of(holder, recorded) then
  set(foreign, 1, MINUTE)
end

if mode == 'no' then
  leave(id)
  if not holder and closed() then return closed_reply() end
  return 'busy ' .. left(lock)
end

local ticket = redis.call('ZSCORE', queue, id)
local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
if not ticket then
  ticket = (last or 0) + 1
  redis.call('ZADD', queue, ticket, id)
end
redis.call('HSET', waiters, id, string.format('%.0f %.0f %s %s', lease, time + live * 1000, mode, ARGV[5]))
if not last or left(queue) < live then
  expire(queue, live)
  expire(waiters, live)
end
local ahead = ticket - redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
return {'queued', ahead, held_for(holder, time), redis.call('EXISTS', foreign)}
