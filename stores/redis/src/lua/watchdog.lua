-- The watchdog. A script, because checking the deadline and joining the queue must be one step.
--
-- K        deadline in microseconds; the key lives a day longer
-- {K}:a    refused kicks
-- ARGV[5]  milliseconds until it expires
-- ARGV[6]  1: refuse this kick from now on, an earlier copy of it may still arrive
--
-- {'expired'} | {'queued', ahead, microseconds left} | {'busy', microseconds left} | {'done'} | {'cancelled'}
-- | {'wrong_kind'}

local found = redis.call('HMGET', key, 'kind', 'deadline')
if not is_of('watchdog', found[1]) then
  return {'wrong_kind'}
end
local deadline = tonumber(found[2])

local function start(milliseconds)
  deadline = time + milliseconds * 1000
  redis.call('HSET', key, 'kind', 'watchdog', 'deadline', text(deadline))
  expire(key, milliseconds + DAY)
end

if op == 'inspect' then
  if not deadline then
    return {'unknown'}
  end
  local is_over = deadline <= time
  return {'inspected', -1, -1, waiting(), math.max(0, deadline - time), is_over and 1 or 0, 0, 0}
elseif op == 'wait' then
  if not deadline then
    start(MINUTE)
  end
  if deadline <= time then
    withdraw(id)
    return {'expired'}
  end
  return watch(deadline - time)
elseif op == 'kick' then
  local kicks = KEYS[4]
  forget(kicks)
  if is_late(kicks, id, ARGV[6]) then
    return {'done'}
  end
  local old = deadline
  start(tonumber(ARGV[5]))
  if old and deadline < old then
    dismiss()
  end
  return {'done'}
end
withdraw(id)
return {'cancelled'}
