-- The first part of scripts in strict mode. After anything that may have lost grants, nothing is granted until they are
-- over. `master_replid` changes at each start of a server, and at each change of the master; the run id does not.
--
-- The last of KEYS         "<replication id> <time of the first call> <longest lease>", times in microseconds
-- The last two of ARGV     the longest lease of this locker, and the slack, in milliseconds

local SLACK = table.remove(ARGV) * 1000
local LONGEST = table.remove(ARGV) * 1000
local EPOCH = table.remove(KEYS)

local has_looked, closed_for, began, looked_at = false, nil, nil, nil

local function look()
  has_looked = true
  local id = string.match(redis.call('INFO', 'replication'), 'role:master.-master_replid:(%x+)')
  local seen, clock = redis.call('GET', EPOCH), redis.call('TIME')
  if not id then
    -- Fails at a replica, which may answer without a write otherwise.
    redis.call('SET', EPOCH, seen or '')
  end
  looked_at = clock[1] * 1000000 + clock[2]
  local known, since, longest = string.match(seen or '', '^(%x+) (%d+) (%d+)$')
  began, longest = tonumber(since), tonumber(longest or 0)
  if known ~= id or longest < LONGEST then
    began, longest = known == id and began or looked_at, math.max(longest, LONGEST)
    -- Removal comes before SET: a script that has removed something may write at maxmemory.
    redis.call('DEL', EPOCH)
    redis.call('SET', EPOCH, string.format('%s %.0f %.0f', id, began, longest))
  end
  local left = began + longest + SLACK - looked_at
  closed_for = left > 0 and left or nil
end

-- Microseconds for which nothing may be granted; nil if there are none.
local function closed()
  if not has_looked then
    look()
  end
  return closed_for
end

-- Whether a hold with this many microseconds left may not be renewed. A former master may have given it to another
-- since, unless it lasts longer than that master goes on.
local function is_doubtful(left)
  return closed() and looked_at + left <= began + SLACK
end
