-- Replies by id, for a minute: a reply may be lost, and the state may have changed before the retry.
--
-- {K}:a  ids by the end of their minute   {K}:b  id -> reply

local ends, answers = KEYS[4], KEYS[5]

local function forget_answer(who)
  redis.call('ZREM', ends, who)
  redis.call('HDEL', answers, who)
end

for _, over in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', text(time))) do
  forget_answer(over)
end

local function remember_answer(who, answer)
  redis.call('ZADD', ends, text(time + MINUTE * 1000), who)
  redis.call('HSET', answers, who, answer)
  expire(ends, MINUTE)
  expire(answers, MINUTE)
end

local function answer_to(who)
  return redis.call('HGET', answers, who)
end
