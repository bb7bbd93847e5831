-- Admits or refuses many callers, each at once or not at all.
--
-- KEYS     of all calls K; those of one limiter have the same
-- ARGV     of all calls the tokens, then of all the settings, then of all the patience
--
-- for each 'admitted 0 REMAINING RESET-AFTER' or 'limited RETRY-AFTER REMAINING RESET-AFTER', or '' where nothing was
-- done: that call has to be made by itself

local clock = redis.call('TIME')
local time, many, limiters, answers = clock[1] * 1000000 + clock[2], #KEYS, {}, {}

for i, key in ipairs(KEYS) do
  local words = ARGV[many + i]
  local limiter = limiters[key] or free_limiter(key, words) or {}
  limiters[key] = limiter
  local answer = limiter.words == words and take(limiter, tonumber(ARGV[i]), tonumber(ARGV[2 * many + i]), time)
  answers[i] = answer or ''
  if not answer then
    -- Nobody overtakes a caller that has to ask again.
    limiter.words = nil
  end
end

for _, limiter in pairs(limiters) do
  if limiter.changed then save_limiter(limiter) end
end
return answers
