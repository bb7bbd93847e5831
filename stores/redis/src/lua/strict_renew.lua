
if string.sub(redis.call('GET', KEYS[1]) or '', 1, 32) == ARGV[1]
  and is_doubtful(redis.call('PTTL', KEYS[1]) * 1000) then
  return 'lost'
end

