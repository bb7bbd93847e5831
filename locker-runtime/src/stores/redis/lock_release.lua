-- Ends the hold and hands the lock to the next in line. A script, because it must touch the caller's own hold only,
-- and nobody may come between the end of it and the next one.
-- The first part of it comes before lock.lua: most releases end there.
--
-- KEYS     as in lock.lua
-- ARGV[2]  1: refuse this id from now on, a copy of its acquire may still arrive
-- ARGV[3]  of how many to tell who come after the new holder; may be missing
-- ARGV[4]  the heir, if the caller has chosen one and told it already, and
-- ARGV[5]  its lease in milliseconds
-- ARGV[6]  its fence
--
-- 'released' | 'not_held' | {'released', 'HOLDER FENCE' and ' ID LEASE' of each who comes after it}

local held = redis.call('GET', KEYS[1]) == ARGV[1]
if held and ARGV[4] then
  -- What was granted to the same one since is another hold: fences rise.
  local recorded = string.match(tostring(redis.pcall('GET', KEYS[2])), '^%d+')
  held = tonumber(recorded or 0) < tonumber(ARGV[6])
end
if held and ARGV[4] then
  -- Leaving comes before setting, as in lock.lua.
  redis.call('ZREM', KEYS[3], ARGV[4])
  redis.call('HDEL', KEYS[4], ARGV[4])
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[5])
  redis.call('SET', KEYS[2], ARGV[6] .. ' ' .. ARGV[4], 'PX', ARGV[5] + 60000)
  if ARGV[3] == '0' then
    return 'released'
  end
elseif held then
  redis.call('DEL', KEYS[1])
  if ARGV[2] == '0' and redis.call('EXISTS', KEYS[3]) == 0 then
    return 'released'
  end
end

