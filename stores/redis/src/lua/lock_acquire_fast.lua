-- Takes the lock if it is free, nobody waits and no id is refused: most acquires end here, before anything else is set
-- up. Also says that it is busy. The first part of lock_acquire_slow.lua, with the same keys and arguments.

if redis.call('EXISTS', KEYS[2]) == 0 then
  -- Microseconds as text: 16 digits until the year 2286, so that texts compare as numbers do.
  local time = redis.call('TIME')
  local fence = time[1] .. string.sub(time[2] + 1000000, 2)
  if redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. fence, 'NX', 'PX', ARGV[2]) then
    local before = redis.pcall('SET', KEYS[3], fence, 'GET')
    if type(before) == 'table' then
      -- Something of another client.
      redis.call('SET', KEYS[3], fence)
    elseif before and before >= fence then
      -- As in lock.lua.
      local last = tonumber(string.match(before, '^%d+') or 0)
      fence = string.format('%.0f', math.max(fence, last < 2 ^ 53 and last + 1 or 0))
      redis.call('SET', KEYS[3], fence)
      redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. fence, 'PX', ARGV[2])
    end
    return 'granted ' .. fence
  end
  if ARGV[3] == 'no' then
    -- A run may have the caller as a member.
    local holder = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+) %d+ ?%+?$')
    if holder and #holder == 32 and holder ~= ARGV[1] then
      return 'busy ' .. redis.call('PTTL', KEYS[1])
    end
  end
end

