-- Rechecks all waiters of a process: keeps their places, and grants a free lock to the next waiter. A script, because
-- the check and the grant must be one step.
--
-- KEYS     as in lock.lua
-- ARGV[2]  milliseconds for which the places are kept
-- ARGV[3]  channel of the caller's process
-- ARGV[4]  ids of some of its waiters
--
-- {'looked', the ids without a place, MILLISECONDS-LEFT of the holder or a woken waiter,
--  1-IF-FOREIGN clients use the lock}

local live, time, missing = tonumber(ARGV[2]), now(), {}
local queued = check_helpers()
for waiter in string.gmatch(ARGV[4], '%x+') do
  if not place(waiter) then
    missing[#missing + 1] = waiter
  end
end
if queued > 0 then
  hear(ARGV[3])
  redis.call('ZREMRANGEBYSCORE', processes, '-inf', string.format('%.0f', time))
  redis.call('ZADD', processes, string.format('%.0f', time + live * 1000), ARGV[3])
  for _, key in ipairs({queue, waiters, processes}) do
    if left(key) < live then
      expire(key, live)
    end
  end
  if redis.call('EXISTS', lock) == 0 then
    grant_waiters(time)
  end
end
local held = redis.call('EXISTS', lock) == 1
return {'looked', table.concat(missing, ' '), held_for(held, time), redis.call('EXISTS', foreign)}
