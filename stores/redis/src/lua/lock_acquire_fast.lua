-- The lock is free, the queue is empty, the id is not refused: most acquires end here, before anything else is set up.
-- The first part of lock_acquire_slow.lua, with the same keys and arguments.

if redis.call('EXISTS', KEYS[3], KEYS[6]) == 0 and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  -- Microseconds as text: 16 digits until the year 2286, so that texts compare as numbers do.
  local time = redis.call('TIME')
  local fence = time[1] .. string.sub(time[2] + 1000000, 2)
  local before = redis.pcall('SET', KEYS[2], fence .. ' ' .. ARGV[1], 'PX', ARGV[2] + 60000, 'GET')
  if type(before) == 'table' then
    redis.call('DEL', KEYS[1])
    return before
  end
  if before and before >= fence then
    -- A number from 2^53 on is not of this crate: none that Lua counts could rise above it.
    local last = tonumber(string.match(before, '^%d+') or 0)
    fence = string.format('%.0f', math.max(fence, last < 2 ^ 53 and last + 1 or 0))
    redis.call('SET', KEYS[2], fence .. ' ' .. ARGV[1], 'PX', ARGV[2] + 60000)
  end
  return 'granted ' .. fence
end

