
if closed() then
  local none = {}
  for i = 1, #KEYS / 4 do
    none[i] = ''
  end
  return none
end

