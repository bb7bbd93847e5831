-- The rest of lock_release.lua.

local heir = ARGV[4]
if held and not heir then
  hand_over()
end
if ARGV[2] == '1' then
  bury()
end
if not held then
  return 'not_held'
end

-- Those who come after the new holder, as long as they keep their turns and are of one process: its own. None where
-- others take part who cannot queue.
local function line(process, most)
  local ids = redis.call('ZRANGE', queue, 0, most - 1)
  if #ids == 0 or redis.call('EXISTS', foreign) == 1 then return '' end
  local text = ''
  for i, waiter in ipairs(redis.call('HMGET', waiters, unpack(ids))) do
    local milliseconds, mode, channel = string.match(waiter or '', '^(%d+) %d+ (%a+) (.*)$')
    process = process or channel
    if mode ~= 'fair' or channel ~= process then break end
    text = text .. ' ' .. ids[i] .. ' ' .. milliseconds
  end
  return text
end

local new, most = heir and {heir, ARGV[6]} or next_holder, tonumber(ARGV[3] or 0)
if new and most > 0 then
  return {'released', new[1] .. ' ' .. new[2] .. line(new[3], most)}
end
return 'released'
