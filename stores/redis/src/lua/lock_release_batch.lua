-- Ends many holds without waiters: what lock_release_fast.lua does, in one call.
--
-- KEYS     K of each call, then {K}:q of each
-- ARGV     the id of each call
--
-- for each 'released', or '' if nothing was done: that call has to be sent alone

local many = #ARGV
local clear = redis.call('EXISTS', unpack(KEYS, many + 1)) == 0
local holders, ended, answers = redis.call('MGET', unpack(KEYS, 1, many)), {}, {}

for i = 1, many do
  local key = KEYS[i]
  answers[i] = ''
  if holders[i] == ARGV[i] and not ended[key] and (clear or redis.call('EXISTS', KEYS[many + i]) == 0) then
    ended[key], ended[#ended + 1] = true, key
    answers[i] = 'released'
  end
end
if ended[1] then
  redis.call('DEL', unpack(ended))
end
return answers
