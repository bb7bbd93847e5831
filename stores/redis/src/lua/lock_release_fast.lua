-- Ends the hold, unless others wait: most releases end here. The rest is for lock_release_slow.lua.
-- A script, because it must end only the caller's own hold.
--
-- KEYS     K, as in lock.lua
-- ARGV     as in lock_release_slow.lua; no id is refused
--
-- 'released' | 'not_held' | nothing

local found = redis.call('GET', KEYS[1])
if not found or string.sub(found, 1, 32) ~= ARGV[1] then
  return 'not_held'
end
-- The last digit of a fence, and no sign.
if #found > 32 and string.byte(found, -1) > 47 then
  redis.call('DEL', KEYS[1])
  return 'released'
end

