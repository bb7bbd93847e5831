-- The simulated clock of tests, before all other parts. The last of ARGV is the time in microseconds. Keys that would
-- have expired by then are deleted first, and messages are kept in a list, behind their channels,
-- instead of being published.

local NOW = tonumber(table.remove(ARGV))
local call = redis.call

-- A helper key contains its key in braces.
local function beside(key, name)
  return '{' .. (string.match(key, '^{(.*)}') or key) .. '}:' .. name
end

local PUSHES = beside(KEYS[1], 'pushes')

local looked_at = {}
for _, key in ipairs(KEYS) do
  local expiries = beside(key, 'expiries')
  local recorded = looked_at[expiries] and {} or call('HGETALL', expiries)
  looked_at[expiries] = true
  for i = 1, #recorded, 2 do
    if tonumber(recorded[i + 1]) <= NOW then
      call('DEL', recorded[i])
    end
    if call('EXISTS', recorded[i]) == 0 then
      call('HDEL', expiries, recorded[i])
    end
  end
end

local function expire(key, milliseconds)
  if call('EXISTS', key) == 1 then
    call('HSET', beside(key, 'expiries'), key, string.format('%.0f', NOW + milliseconds * 1000))
  end
end

local commands = {}

-- A key that is gone has no expiry when it is there again.
for _, name in ipairs({'DEL', 'UNLINK', 'ZREM', 'HDEL', 'ZREMRANGEBYSCORE'}) do
  commands[name] = function(...)
    local reply = call(name, ...)
    for _, key in ipairs((name == 'DEL' or name == 'UNLINK') and {...} or {(...)}) do
      if call('EXISTS', key) == 0 then
        call('HDEL', beside(key, 'expiries'), key)
      end
    end
    return reply
  end
end

function commands.TIME()
  return {string.format('%.0f', math.floor(NOW / 1000000)), string.format('%.0f', NOW % 1000000)}
end

function commands.SET(key, value, ...)
  local options, milliseconds, only_new, i = {...}, nil, false, 1
  local rest = {}
  while options[i] do
    if options[i] == 'PX' then
      milliseconds, i = options[i + 1], i + 1
    else
      only_new = only_new or options[i] == 'NX'
      rest[#rest + 1] = options[i]
    end
    i = i + 1
  end
  local reply = call('SET', key, value, unpack(rest))
  if milliseconds and (reply or not only_new) then
    expire(key, milliseconds)
  end
  return reply
end

function commands.PEXPIRE(key, milliseconds)
  expire(key, milliseconds)
end

function commands.PTTL(key)
  if call('EXISTS', key) == 0 then return -2 end
  local at = call('HGET', beside(key, 'expiries'), key)
  return at and (at - NOW) / 1000 or -1
end

function commands.PUBLISH(channel, message)
  call('RPUSH', PUSHES, channel .. ' ' .. message)
  return 1
end

local function moved(command, ...)
  return (commands[command] or function(...) return call(command, ...) end)(...)
end

local redis = {error_reply = redis.error_reply, call = moved, pcall = moved}

