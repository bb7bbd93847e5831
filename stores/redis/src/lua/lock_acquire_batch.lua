-- Takes many locks for many callers, if each is free, without a queue, and its id not refused: what
-- lock_acquire_fast.lua does, in one call.
--
-- KEYS     K of each call, then {K}:f, {K}:q, {K}:x:id of each
-- ARGV     the id of each call, then the lease of each in milliseconds
--
-- for each 'granted FENCE', or '' if nothing was done: that call has to be sent alone

local many = #KEYS / 4
local clear = redis.call('EXISTS', unpack(KEYS, 2 * many + 1)) == 0
local clock, answers = redis.call('TIME'), {}
-- Microseconds as text: 16 digits until the year 2286, so that texts compare as numbers do.
local time = clock[1] .. string.sub(clock[2] + 1000000, 2)

-- Formatting numbers is the main cost here, and most calls have the same lease.
local last, kept

for i = 1, many do
  local id, lease = ARGV[i], ARGV[many + i]
  if lease ~= last then
    last, kept = lease, string.format('%.0f', lease + 60000)
  end
  answers[i] = ''
  if (clear or redis.call('EXISTS', KEYS[2 * many + i], KEYS[3 * many + i]) == 0)
    and redis.call('SET', KEYS[i], id, 'NX', 'PX', lease) then
    local fence, record = time, KEYS[many + i]
    local before = redis.pcall('SET', record, fence .. ' ' .. id, 'PX', kept, 'GET')
    if type(before) == 'table' then
      redis.call('DEL', KEYS[i])
    else
      if before and before >= fence then
        local recorded = tonumber(string.match(before, '^%d+') or 0)
        fence = string.format('%.0f', math.max(fence, recorded < 2 ^ 53 and recorded + 1 or 0))
        redis.call('SET', record, fence .. ' ' .. id, 'PX', kept)
      end
      answers[i] = 'granted ' .. fence
    end
  end
end
return answers
