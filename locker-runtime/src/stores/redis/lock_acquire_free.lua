-- The lock is free, nobody waits, the id is not refused: most acquires end here, before anything else is set up.
-- Comes before lock.lua and lock_acquire.lua and takes the same keys and arguments.

if redis.call('EXISTS', KEYS[3], KEYS[6]) == 0 and set(KEYS[1], ARGV[1], ARGV[2], 'NX') then
  local fence = now()
  local before = set(KEYS[2], string.format('%.0f %s', fence, ARGV[1]), ARGV[2] + 60000, 'GET')
  local last = before and tonumber(string.match(before, '^%d+')) or 0
  if last >= fence then
    fence = last + 1
    set(KEYS[2], string.format('%.0f %s', fence, ARGV[1]), ARGV[2] + 60000)
  end
  return {'granted', fence}
end

