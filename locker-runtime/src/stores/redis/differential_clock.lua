-- Stands for clock.lua where tests move the time: the last of ARGV is the time in microseconds, what would have
-- expired by then is deleted first, and what would have been published is kept in a list.

local NOW = tonumber(table.remove(ARGV))
local EXPIRIES, PUSHES = '{' .. KEYS[1] .. '}:expiries', '{' .. KEYS[1] .. '}:pushes'

local recorded = redis.call('HGETALL', EXPIRIES)
for i = 1, #recorded, 2 do
  if tonumber(recorded[i + 1]) <= NOW then
    redis.call('DEL', recorded[i])
  end
  if redis.call('EXISTS', recorded[i]) == 0 then
    redis.call('HDEL', EXPIRIES, recorded[i])
  end
end

local function now()
  return NOW
end

local function expire(key, milliseconds)
  if redis.call('EXISTS', key) == 1 then
    redis.call('HSET', EXPIRIES, key, string.format('%.0f', NOW + milliseconds * 1000))
  end
end

local function set(key, value, milliseconds, ...)
  local reply = redis.call('SET', key, value, ...)
  if reply then
    expire(key, milliseconds)
  end
  return reply
end

local function left(key)
  if redis.call('EXISTS', key) == 0 then return -2 end
  local at = redis.call('HGET', EXPIRIES, key)
  return at and (at - NOW) / 1000 or -1
end

local function publish(channel, message)
  redis.call('RPUSH', PUSHES, message)
  return 1
end
