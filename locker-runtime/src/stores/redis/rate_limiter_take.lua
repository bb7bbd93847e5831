-- Admissions that are due at once and have nobody before them.

-- In the year 2255: what comes later comes then, because numbers are exact up to here.
local LATEST = 2 ^ 53

local function till_reset(time, debt)
  return math.min(time + math.ceil(debt), LATEST) - time
end

-- A limiter whose settings are still `words` and that nobody is in line at.
local function free_limiter(key, words)
  local found = redis.call('HMGET', key, 'quota', 'meter', 'line')
  if found[1] ~= words or found[3] then return end
  local kind, one, other = string.match(found[2], '^(%a) (%S+) (%S+)$')
  local _, count, interval, burst = string.match(words, '^(%a) (%d+) (%d+) (%S+)$')
  return {key = key, words = words, kind = kind, one = tonumber(one), other = tonumber(other),
    count = tonumber(count), interval = tonumber(interval), burst = tonumber(burst)}
end

-- The answer, if there are enough tokens.
local function take(limiter, tokens, time)
  local count, interval = limiter.count, limiter.interval
  if limiter.kind == 'w' then
    local used, till = limiter.other + tokens, math.min(limiter.one + interval, LATEST)
    if limiter.one <= time and time < till and used <= count then
      limiter.other = used
      return string.format('admitted 0 %.0f %.0f', count - used, till - time)
    end
    return
  end
  local size, emission = count == 0 and 0 or limiter.burst or count, interval / math.max(count, 1)
  local debt, tolerance = math.max(0, limiter.other - math.max(0, time - limiter.one)), emission * 0.001
  local after = debt + tokens * emission
  if time >= limiter.one and tokens <= size and after - size * emission <= tolerance then
    limiter.one, limiter.other = time, after
    local remaining = math.floor(math.max(0, (size * emission - after + tolerance) / emission))
    return string.format('admitted 0 %.0f %.0f', remaining, till_reset(time, after))
  end
end

local function save_limiter(limiter)
  if limiter.kind == 'w' then
    redis.call('HSET', limiter.key, 'meter', string.format('w %.0f %.0f', limiter.one, limiter.other))
  else
    redis.call('HSET', limiter.key, 'meter', string.format('g %.0f %.17g', limiter.one, limiter.other))
    local kept = math.ceil(till_reset(limiter.one, limiter.other) / 1000)
    redis.call('PEXPIRE', limiter.key, string.format('%.0f', kept))
  end
end

