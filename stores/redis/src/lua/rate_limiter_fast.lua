-- Most requests end here, before anything else is set up. Comes before rate_limiter_slow.lua, with the same keys and
-- arguments.

local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local limiter = ARGV[1] == 'take' and free_limiter(KEYS[1], ARGV[6], micros)
if limiter then
  local answer = take(limiter, tonumber(ARGV[5]), tonumber(ARGV[7]), micros)
  if limiter.changed then
    save_limiter(limiter)
  end
  if answer then return answer end
end

