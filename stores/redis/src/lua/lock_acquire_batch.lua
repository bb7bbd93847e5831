-- Takes many locks for many callers, if each is free and has no queue: what lock_acquire_fast.lua does, in one call.
-- The fences of different names may be the same.
--
-- KEYS     K of each call, then {K}:q of each, then the last fence, as in lock.lua
-- ARGV     the id of each call, then the lease of each in milliseconds
--
-- for each 'granted FENCE', or '' if nothing was done: that call has to be sent alone

local many = #ARGV / 2
local last_fence = KEYS[#KEYS]
local queues = {unpack(KEYS, many + 1, 2 * many)}
local clear = redis.call('EXISTS', unpack(queues)) == 0
local clock, answers, any = redis.call('TIME'), {}, false
-- Microseconds as text: 16 digits until the year 2286, so that texts compare as numbers do.
local fence = clock[1] .. string.sub(clock[2] + 1000000, 2)
local before = redis.pcall('GET', last_fence)
if type(before) == 'string' and before >= fence then
  -- As in lock.lua.
  local last = tonumber(string.match(before, '^%d+') or 0)
  fence = string.format('%.0f', math.max(fence, last < 2 ^ 53 and last + 1 or 0))
end

for i = 1, many do
  local id = ARGV[i]
  answers[i] = ''
  if (clear or redis.call('EXISTS', queues[i]) == 0)
    and redis.call('SET', KEYS[i], id .. ' ' .. fence, 'NX', 'PX', ARGV[many + i]) then
    answers[i], any = 'granted ' .. fence, true
  end
end
if any then
  redis.call('SET', last_fence, fence)
end
return answers
