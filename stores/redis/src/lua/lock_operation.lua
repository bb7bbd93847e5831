-- The first part of the script for all that is not the common case: its operations share lock.lua, and run one by one.
--
-- ARGV[1]  the operation; behind it come the arguments of its part

local operation = table.remove(ARGV, 1)
