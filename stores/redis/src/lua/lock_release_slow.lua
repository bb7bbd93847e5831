-- The second part of lock_release_fast.lua.

local held = redis.call('GET', lock) == id
if held then
  check_helpers()
  end_hold(read_record())
  hand_over(true)
end
if ARGV[2] == '1' then
  add_tombstone()
end
return held and answer('released') or 'not_held'
