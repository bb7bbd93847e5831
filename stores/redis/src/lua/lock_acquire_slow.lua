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

local seen = redis.call('MGET', lock, record)
local holder, fence, sign = read_hold(seen[1])
local recorded = sign == '*' and seen[2] or nil

local function run_answer()
  local members = run_of(holder, recorded)
  if members and ARGV[6] ~= '1' and string.find(members, id .. ':', 1, true) then
    return {'run', members, fence}
  end
end

-- The former master may have ended the hold.
if closed() and (holder == name or run_answer()) then
  return closed_reply()
end
-- Before the queue is touched, which may belong to other data.
if not holder and redis.call('EXISTS', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds something that is no lock')
end
local time = now()
local is_late = is_refused(id, time)
if holder == name and ARGV[6] ~= '1' then
  if name ~= id and not is_late then
    leave(id)
    -- A hold shared by attempts belongs to none of them: it does not end when one of them gives up.
    if fence and (attempt_of(name, recorded) or id) ~= id then
      redis.call('DEL', record)
      hold(name, fence, count_waiters() > 0 and ' +' or '', 'KEEPTTL')
    end
  end
  if not fence then
    -- Another client has set the id alone.
    fence = next_fence(time)
    redis.call('SET', last_fence, string.format('%.0f', fence))
    hold(name, fence, ' +', 'KEEPTTL')
  end
  return run_answer() or string.format('granted %.0f', fence)
end
if is_late then
  return 'cancelled'
end
local run = run_answer()
if run then
  return run
end

local function grant()
  local fence, is_named = string.format('%.0f', next_fence(time)), name ~= id
  hold(name, fence, is_named and ' *' or count_waiters() > 0 and ' +' or '', 'PX', lease)
  redis.call('SET', last_fence, fence)
  if is_named then
    set(record, fence .. ' ' .. id .. ' ' .. name, lease + MINUTE)
  end
  return 'granted ' .. fence
end

-- Only an unfair caller may overtake, and only unfair waiters.
local function overtakes()
  local first, waiter = head()
  return not first or (mode == 'unfair' and (waiter.mode == 'unfair' or waiter.mode == 'woken'))
end

local queued = check_helpers()
hear(ARGV[5])
if not holder then
  note_silence(seen[2])
elseif sign ~= '*' and seen[2] then
  -- It is of an earlier hold, and says nothing when this one ends.
  redis.call('DEL', record)
end
if queued > 0 then
  if not holder and not overtakes() then
    grant_waiters(time)
    holder, fence, sign = read_hold(redis.call('GET', lock))
    recorded = record_of(sign)
    run = run_answer()
    if run then
      return run
    end
  end
  if not holder and not closed() and (overtakes() or head() == id) then
    leave(id)
    return grant()
  end
elseif not holder and not closed() then
  return grant()
end

if holder and not fence then
  set(foreign, 1, MINUTE)
end

if mode == 'no' then
  leave(id)
  if not holder and closed() then return closed_reply() end
  return 'busy ' .. left(lock)
end

if sign == '' then
  hold(holder, fence, ' +', 'KEEPTTL')
end
local ticket = place(id)
local last = math.max(tonumber(redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0), 0)
if not ticket then
  ticket = last + 1
  redis.call('ZADD', queue, ticket, id)
end
redis.call('HSET', waiters, id, string.format('%.0f %.0f %s %s', lease, time + live * 1000, mode, ARGV[5]))
if left(queue) < live then
  expire(queue, live)
end
if last == 0 or left(waiters) < live then
  expire(waiters, live)
end
local _, _, first = head()
return {'queued', ticket - first, held_for(holder, time), redis.call('EXISTS', foreign)}
