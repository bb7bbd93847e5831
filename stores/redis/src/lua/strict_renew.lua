
if redis.call('GET', KEYS[1]) == ARGV[1] and is_doubtful(redis.call('PTTL', KEYS[1]) * 1000) then
  return 'lost'
end

