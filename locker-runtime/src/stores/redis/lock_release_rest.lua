-- The rest of lock_release.lua.

if held then
  hand_over()
end
if ARGV[2] == '1' then
  bury()
end
return held and 'released' or 'not_held'
