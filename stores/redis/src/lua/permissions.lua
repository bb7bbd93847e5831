-- Tries every command of the scripts and returns the refused ones. A script, because permissions inside scripts
-- matter.
--
-- KEYS[1], KEYS[2]  an unused key and helper key
-- ARGV[1]           channel of this process
-- ARGV[2]           1: strict mode, which reads the replication id
--
-- {refused command, ..}

local key, helper, channel = KEYS[1], KEYS[2], ARGV[1]
local refused = {}
-- up to 7.0; from 7.2 on
local complaints = {'The user executing the script', 'ACL failure'}

local function try(command, ...)
  local reply = redis.pcall(command, ...)
  local problem = type(reply) == 'table' and reply.err
  for _, complaint in ipairs(complaints) do
    if problem and string.find(problem, complaint, 1, true) then
      refused[#refused + 1] = command
    end
  end
end

try('TIME')
try('GET', key)
try('MGET', key, helper)
try('EXISTS', helper)
try('PTTL', key)
try('SET', key, '', 'PX', 100, 'NX')
try('PEXPIRE', key, 100)
try('DEL', key)
try('UNLINK', key)
try('ZADD', helper, 'GT', 1, '')
try('PEXPIRE', helper, 100)
try('ZREM', helper, '')
try('ZRANGE', helper, 0, 0)
try('ZSCORE', helper, '')
try('HSET', helper, '', '')
try('PEXPIRE', helper, 100)
try('HDEL', helper, '')
try('HGET', helper, '')
try('HMGET', helper, '')
try('ZCARD', helper)
try('ZCOUNT', helper, 0, 0)
try('ZRANGEBYSCORE', helper, 0, 0)
try('ZREMRANGEBYSCORE', helper, 0, 0)
try('TYPE', key)
try('PUBLISH', channel, '')
if ARGV[2] == '1' then
  try('INFO', 'replication')
end
return refused
