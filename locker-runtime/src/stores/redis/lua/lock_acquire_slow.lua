-- Takes the lock, or a place in its queue. A script, because reading holder, queue and tombstone and taking the lock
-- must be one step.
--
-- KEYS     as in lock.lua
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  'fair' or 'unfair': how to wait; 'no': do not wait
-- ARGV[4]  milliseconds for which the place in the queue is kept
-- ARGV[5]  channel of the caller's process
-- ARGV[6]  1: the process has passed over this member of the run, which queues again; may be missing
--
-- 'granted FENCE'
-- | {'run', its members, its last FENCE}: the id is a member of the run that holds the lock; a message follows
-- | {'queued', AHEAD, MILLISECONDS-LEFT of the holder or a woken waiter, 1-IF-FOREIGN clients use the lock}
-- | 'busy MILLISECONDS-LEFT' | 'cancelled'

local lease, mode, live = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local seen = redis.call('MGET', lock, record, tombstone)
local holder, recorded = seen[1], seen[2]

local function run_answer()
  local members = run_of(holder, recorded)
  if members and ARGV[6] ~= '1' and string.find(members, id .. ':', 1, true) then
    return {'run', members, fence_of(holder, recorded)}
  end
end

if holder == id and ARGV[6] ~= '1' then
  local fence = fence_of(id, recorded)
  if not fence then
    fence = fence_after(recorded, now())
    set(record, string.format('%.0f %s', fence, id), lease + MINUTE)
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
  set(lock, id, lease)
  set(record, fence .. ' ' .. id, lease + MINUTE)
  return 'granted ' .. fence
end

-- Only an unfair caller may overtake, and only unfair waiters.
local function overtakes()
  local first, waiter = head()
  return not first or (mode == 'unfair' and waiter.mode ~= 'fair')
end

local time = now()
if check_helpers() > 0 then
  if not holder and not overtakes() then
    pump(time)
    holder, recorded = redis.call('GET', lock), read_record()
    run = run_answer()
    if run then
      return run
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
-- A free lock is kept for the woken head; if dead waiters are left, the caller asks again.
local held_for = holder and left(lock) or more == 1 and 0 or GRANT_WINDOW
return {'queued', ahead, held_for, redis.call('EXISTS', foreign)}
