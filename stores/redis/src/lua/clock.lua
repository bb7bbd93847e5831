-- The server's clock, expiries and messages. Part of every script, before its own parts.

-- Microseconds since the epoch. 2^53 of them last until the year 2255, so a Lua number holds them exactly;
-- they are written with '%.0f', because tostring gives 1.7e+15.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function set(key, value, milliseconds, ...)
  return redis.call('SET', key, value, 'PX', milliseconds, ...)
end

local function expire(key, milliseconds)
  redis.call('PEXPIRE', key, milliseconds)
end

-- Milliseconds; -2 if there is no such key, -1 if it has no expiry.
local function left(key)
  return redis.call('PTTL', key)
end

-- Returns how many connections it reached: none means that the receiver's process is gone.
local function publish(channel, message)
  return redis.call('PUBLISH', channel, message)
end
