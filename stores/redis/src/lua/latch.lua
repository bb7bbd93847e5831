-- The latch. A script, because counting, opening and joining the queue must be one step.
--
-- K        count: required count-downs; counted: count-downs so far; until: end of their validity
-- {K}:a    ids that have counted
-- {K}:z    waits ended by an opening: the count may differ when a waiter asks again
-- ARGV[5]  count
--
-- {'done'} | {'value', remaining count} | {'queued', ahead, -1} | {'busy', 0} | {'cancelled'} | {'wrong_kind'}

local seen = KEYS[4]
local found = redis.call('HMGET', key, 'kind', 'count', 'counted', 'until')
if not is_of('latch', found[1]) then
  return {'wrong_kind'}
end
local count, counted = tonumber(found[2] or 0), tonumber(found[3] or 0)
if tonumber(found[4] or 0) <= time then
  counted = 0
end
forget(seen)

local function save(kept)
  redis.call('HSET', key, 'kind', 'latch', 'count', text(count), 'counted', text(counted))
  keep(key, kept)
  if counted >= count then
    dismiss('')
  end
end

if op == 'inspect' then
  return {found[1] and 'inspected' or 'unknown', count, counted, waiting(), -1, counted >= count and 1 or 0, 0, 0}
elseif op == 'wait' then
  if answer_for(id) then
    return {'done'}
  end
  -- If the key was deleted, a waiter restores the count.
  if not found[2] or not redis.call('ZSCORE', queue, id) then
    count = tonumber(ARGV[5])
  end
  if counted >= count then
    withdraw(id)
  end
  if live or found[1] then
    save(live or 1)
  end
  if counted >= count then
    return {'done'}
  end
  return watch()
elseif op == 'count_down' then
  count = tonumber(ARGV[5])
  if not remembers(seen, id) then
    remember(seen, id)
    counted = counted + 1
    redis.call('HSET', key, 'until', text(time + DAY * 1000))
    expire(key, DAY)
  end
  save(1)
  return {'value', math.max(0, count - counted)}
end
withdraw(id)
if counted == 0 and waiting() == 0 and redis.call('EXISTS', seen) == 0 then
  redis.call('DEL', key)
end
return {'cancelled'}
