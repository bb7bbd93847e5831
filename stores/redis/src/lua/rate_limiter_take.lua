-- Requests that are admitted or refused at once, at limiters without a queue.

-- The year 2255: later times are cut to it, because numbers are exact up to here.
local LATEST = 2 ^ 53

local function till_reset(time, debt)
  return math.min(time + math.ceil(debt), LATEST) - time
end

-- The limiter, if its settings are still `words` and it has no queue.
local function free_limiter(key, words)
  local found = redis.call('HMGET', key, 'quota', 'meter', 'line')
  if found[1] ~= words or found[3] then return end
  local kind, one, other = string.match(found[2], '^(%a) (%S+) (%S+)$')
  local _, count, interval, burst = string.match(words, '^(%a) (%d+) (%d+) (%S+)$')
  return {key = key, words = words, kind = kind, one = tonumber(one), other = tonumber(other),
    count = tonumber(count), interval = tonumber(interval), burst = tonumber(burst)}
end

-- The reply to a caller that does not wait: its tokens are available, or come after its patience. Nothing for other
-- callers. Sets `changed` if the limiter has to be saved.
local function take(limiter, tokens, patience, time)
  local count, interval = limiter.count, limiter.interval
  if limiter.kind == 'w' then
    local used, till = limiter.other + tokens, math.min(limiter.one + interval, LATEST) - time
    if time < limiter.one or till <= 0 or tokens > count then return end
    if used <= count then
      limiter.other, limiter.changed = used, true
      return string.format('admitted 0 %.0f %.0f', count - used, till)
    end
    return till > patience and string.format('limited %.0f %.0f %.0f', till, math.max(0, count - limiter.other), till)
  end
  local size, emission = count == 0 and 0 or limiter.burst or count, interval / math.max(count, 1)
  if time < limiter.one or tokens > size then return end
  local debt, tolerance = math.max(0, limiter.other - (time - limiter.one)), emission * 0.001
  local after = debt + tokens * emission
  local excess = after - size * emission
  local fits = excess <= tolerance
  local wait, used = fits and 0 or till_reset(time, excess), fits and after or debt
  if fits then
    limiter.one, limiter.other, limiter.changed = time, after, true
  elseif wait <= patience then
    return
  end
  local remaining = math.floor(math.max(0, (size * emission - used + tolerance) / emission))
  return string.format('%s %.0f %.0f %.0f', fits and 'admitted' or 'limited', wait, remaining, till_reset(time, used))
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

