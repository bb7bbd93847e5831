-- Waiters for something that is not held. A notification makes them ask again.
--
-- {K}:w  id -> "<channel>"

-- `due`: microseconds until it comes without a call at the earliest, if ever.
local function watch(due)
  if not live then
    leave(id)
    return {'busy', due or 0}
  end
  return {'queued', join(channel, live), due or -1}
end

local function dismiss(signal)
  local all = redis.call('ZRANGE', queue, 0, -1)
  for _, waiter in ipairs(all) do
    tell(signal, waiter, redis.call('HGET', waiters, waiter))
  end
  redis.call('DEL', queue, waiters)
end
