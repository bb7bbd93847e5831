-- Requests that are admitted or refused at once, at limiters without a queue.

-- The year 2255: later times are cut to it, because numbers are exact up to here.
local LATEST = 2 ^ 53

local function till_reset(time, debt)
  return math.min(time + math.ceil(debt), LATEST) - time
end

-- A whole number as text. `%d` is three times as fast, but holds 32 bits on some servers.
local function whole(number)
  return string.format(number < 2147483648 and '%d' or '%.0f', number)
end

local settings_of_words = {}

-- The settings, which many limiters of a batch share.
local function settings_of(words)
  local settings = settings_of_words[words]
  if not settings then
    local algorithm, count, interval, burst = string.match(words, '^(%a) (%d+) (%d+) (%S+)$')
    settings = {algorithm = algorithm, count = tonumber(count), interval = tonumber(interval),
      burst = tonumber(burst)}
    -- For how long a window keeps the limiter: a bucket keeps the beat of its refills for one idle interval.
    settings.kept = settings.interval * (algorithm == 'b' and 2 or 1)
    settings_of_words[words] = settings
  end
  return settings
end

-- The limiter, if its settings are still `words` and it has no queue, or if it is new.
local function free_limiter(key, words, time)
  local found = redis.call('HMGET', key, 'quota', 'meter', 'line')
  local is_new = not found[1] and redis.call('EXISTS', key) == 0
  if not is_new and (found[1] ~= words or found[3]) then return end
  local settings = settings_of(words)
  local limiter = {key = key, words = words, quota = words, is_new = is_new, settings = settings}
  if is_new then
    local algorithm = settings.algorithm
    -- The time is within the first window since 1970.
    if algorithm ~= 'g' and time < settings.kept then return end
    limiter.kind, limiter.one, limiter.other = algorithm == 'g' and 'g' or 'w', time, 0
    limiter.start = whole(time)
  else
    local kind, one, other = string.match(found[2], '^(%a) (%S+) (%S+)$')
    limiter.kind, limiter.start, limiter.one, limiter.other = kind, one, tonumber(one), tonumber(other)
  end
  return limiter
end

-- The reply to a caller that does not wait: its tokens are available, or come after its patience. Nothing for other
-- callers. Sets `changed` if the limiter has to be saved.
local function take(limiter, tokens, patience, time)
  local settings = limiter.settings
  local count, interval = settings.count, settings.interval
  if limiter.kind == 'w' then
    local used, till = limiter.other + tokens, math.min(limiter.one + interval, LATEST) - time
    if time < limiter.one or till <= 0 or tokens > count then return end
    if used <= count then
      limiter.other, limiter.changed = used, true
      return 'admitted 0 ' .. whole(count - used) .. ' ' .. whole(till)
    end
    return till > patience and string.format('limited %.0f %.0f %.0f', till, math.max(0, count - limiter.other), till)
  end
  local size, emission = count == 0 and 0 or settings.burst or count, interval / math.max(count, 1)
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
  -- The start of a window stays as it is.
  local meter = is_window and 'w ' .. limiter.start .. ' ' .. whole(limiter.other)
    or string.format('g %.0f %.17g', limiter.one, limiter.other)
  if limiter.is_new then
    redis.call('HSET', limiter.key, 'kind', 'rate', 'quota', limiter.quota, 'meter', meter)
  else
    redis.call('HSET', limiter.key, 'meter', meter)
  end
  -- The end of a window stays.
  if limiter.is_new or not is_window then
    local kept = till_reset(limiter.one, is_window and limiter.settings.kept or limiter.other)
    redis.call('PEXPIRE', limiter.key, string.format('%.0f', math.ceil(kept / 1000)))
  end
end

