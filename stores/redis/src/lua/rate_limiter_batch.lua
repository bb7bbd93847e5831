-- Admits or refuses many callers, if that is possible at once.
--
-- KEYS     K of each call; calls of one limiter have the same K
-- ARGV     the tokens of each call, then the settings of each, then the patience of each
--
-- for each 'admitted 0 REMAINING RESET-AFTER' or 'limited RETRY-AFTER REMAINING RESET-AFTER', or '' if nothing was
-- done: that call has to be sent alone

local clock = redis.call('TIME')
local time, many, limiters, answers = clock[1] * 1000000 + clock[2], #KEYS, {}, {}

for i, key in ipairs(KEYS) do
  local words = ARGV[many + i]
  local limiter = limiters[key] or free_limiter(key, words, time) or {}
  limiters[key] = limiter
  local answer = limiter.words == words and take(limiter, tonumber(ARGV[i]), tonumber(ARGV[2 * many + i]), time)
  answers[i] = answer or ''
  if not answer then
    -- No later call overtakes one that has to be sent again.
    limiter.words = nil
  end
end

for _, limiter in pairs(limiters) do
  if limiter.changed then save_limiter(limiter) end
end
return answers
