-- The settings are those of the last request, nobody is in line, and there are tokens: most requests end here, before
-- anything else is set up. The first part of rate_limiter.lua, with the same keys and arguments.

local free = ARGV[1] == 'take' and redis.call('HMGET', KEYS[1], 'quota', 'meter', 'line')
if free and free[1] and not free[3]
  and free[1] == ARGV[6] .. ' ' .. ARGV[7] .. ' ' .. ARGV[8] .. ' ' .. ARGV[9] then
  local clock = redis.call('TIME')
  local time, tokens, interval = clock[1] * 1000000 + clock[2], tonumber(ARGV[5]), tonumber(ARGV[8])
  local kind, one, other = string.match(free[2], '^(%a) (%S+) (%S+)$')
  if kind == 'w' then
    local used, till = other + tokens, one + interval
    local remaining = ARGV[7] - used
    if time < till and remaining >= 0 then
      redis.call('HSET', KEYS[1], 'meter', string.format('w %s %.0f', one, used))
      return string.format('admitted 0 %.0f %.0f', remaining, till - time)
    end
  else
    local count = tonumber(ARGV[7])
    local size, emission = count == 0 and 0 or tonumber(ARGV[9]) or count, interval / math.max(count, 1)
    local debt, tolerance = math.max(0, other - math.max(0, time - one)), emission * 0.001
    local after = debt + tokens * emission
    if time >= tonumber(one) and tokens <= size and after - size * emission <= tolerance then
      redis.call('HSET', KEYS[1], 'meter', string.format('g %.0f %.17g', time, after))
      redis.call('PEXPIRE', KEYS[1], math.ceil(math.ceil(after) / 1000))
      local remaining = math.floor(math.max(0, (size * emission - after + tolerance) / emission))
      return string.format('admitted 0 %.0f %.0f', remaining, math.ceil(after))
    end
  end
end

