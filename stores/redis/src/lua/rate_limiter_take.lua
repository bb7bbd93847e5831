-- Requests that are admitted or refused at once, at limiters without a queue.

-- The year 2255: later times are cut to it, because numbers are exact up to here.
local LATEST = 2 ^ 53

local function till_reset(time, debt)
  return math.min(time + math.ceil(debt), LATEST) - time
end

-- The limiter, if its settings are still `words` and it has no queue, or if it is new.
local function free_limiter(key, words, time)
  local found = redis.call('HMGET', key, 'kind', 'quota', 'meter', 'line')
  local is_new = not found[1]
  if not is_new and (found[2] ~= words or found[4]) then return end
  local algorithm, count, interval, burst = string.match(words, '^(%a) (%d+) (%d+) (%S+)$')
  local limiter = {key = key, words = words, quota = words, is_new = is_new, count = tonumber(count),
    interval = tonumber(interval), burst = tonumber(burst)}
  -- For how long a window keeps the limiter: a bucket keeps the beat of its refills for one idle interval.
  limiter.kept = limiter.interval * (algorithm == 'b' and 2 or 1)
  if is_new then
    -- The time is within the first window since 1970.
    if algorithm ~= 'g' and time < limiter.kept then return end
    limiter.kind, limiter.one, limiter.other = algorithm == 'g' and 'g' or 'w', time, 0
  else
    local kind, one, other = string.match(found[3], '^(%a) (%S+) (%S+)$')
    limiter.kind, limiter.one, limiter.other = kind, tonumber(one), tonumber(other)
  end
  return limiter
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
  local is_window = limiter.kind == 'w'
  local meter = string.format(is_window and 'w %.0f %.0f' or 'g %.0f %.17g', limiter.one, limiter.other)
  if limiter.is_new then
    redis.call('HSET', limiter.key, 'kind', 'rate', 'quota', limiter.quota, 'meter', meter)
  else
    redis.call('HSET', limiter.key, 'meter', meter)
  end
  -- The end of a window stays.
  if limiter.is_new or not is_window then
    local kept = till_reset(limiter.one, is_window and limiter.kept or limiter.other)
    redis.call('PEXPIRE', limiter.key, string.format('%.0f', math.ceil(kept / 1000)))
  end
end

