-- Ends many holds without waiters: what lock_release_fast.lua does, in one call.
--
-- KEYS     K of each call
-- ARGV     the id of each call
--
-- for each 'released', or '' if nothing was done: that call has to be sent alone

local holders, ended, answers = redis.call('MGET', unpack(KEYS)), {}, {}

for i, key in ipairs(KEYS) do
  local found = holders[i]
  answers[i] = ''
  if found and #found > 32 and string.sub(found, 1, 32) == ARGV[i] and string.byte(found, -1) > 47
    and not ended[key] then
    ended[key], ended[#ended + 1] = true, key
    answers[i] = 'released'
  end
end
if ended[1] then
  redis.call('DEL', unpack(ended))
end
return answers
