-- In place of strict.lua, without strict mode.
local function closed() end
local function is_doubtful() end
