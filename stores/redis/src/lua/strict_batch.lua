
if closed() then
  local none = {}
  for i = 1, #ARGV / 2 do
    none[i] = ''
  end
  return none
end

