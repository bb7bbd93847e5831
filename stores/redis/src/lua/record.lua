-- The record. A script, because a call must look at the last run and begin the next one in one step.
--
-- K        run: "<id> <fence> <until> <slot> <digest> <slots missed> <milliseconds of refusal>"
--          unknown: "<id> <fence> <until> <slot> <digest>", a run that ended without a word, and may not be repeated
--          lapsed: the same of one that may, while nothing has begun since
--          done: "<fence> <until>", the success that counts for all; `until` in microseconds, 'inf': without end
-- {K}:a    refused ids
-- {K}:b    results: fence -> value; all: "<fence>:<id>:<slot>:<digest>:<until>:<1: waited for>:<bytes>;" for each
--          success in their order, which counts until then for those that waited for it, and for its own id
-- {K}:z    the answer is the fence of the success
-- KEYS[8]  the last fence of all names, as in lock.lua
-- ARGV[5]  lease in milliseconds, 'inf': without end; to finish how long to keep the value; to evict the highest fence
-- ARGV[6]  microseconds from slot to slot, '-': no slots; to finish the value
-- ARGV[7]  microseconds from the epoch to a slot   ARGV[8]  microseconds by which a call may be early
-- ARGV[9]  digest, '-': any
-- ARGV[10] milliseconds for which the outcome of a run without a word is unknown, '-': it may be repeated;
--          the attempt of a renewal or release
-- ARGV[11] 1: refuse this id from now on   ARGV[12] 1: refuse this attempt from now on
--
-- {'begun', fence, slot or -1, slots missed} | {'finished', value} | {'mismatch'} | {'queued', ahead, microseconds}
-- | {'busy', microseconds} | {'recorded'} | {'released'} | {'not_held'} | {'renewed', fence} | {'lost'} | {'cancelled'}
-- | {'wrong_kind'} | {'closed', milliseconds for which nothing is granted}

local tombstones, results, last_fence = KEYS[4], KEYS[5], KEYS[8]
-- The maximum of results for waiters, and of their bytes.
local MOST, ROOM = 100, 512 * 1024
local FOR_EVER = 100 * 365 * DAY

local found = redis.call('HMGET', key, 'kind', 'run', 'unknown', 'done', 'lapsed')
if not is_of('record', found[1]) then
  return {'wrong_kind'}
end

local function begun(words)
  local of, fence, till, slot, digest, rest = string.match(words or '', '^(%x+) (%d+) (%w+) (%S+) (%S+) ?(.*)$')
  return of and {id = of, fence = tonumber(fence), till = till == 'inf' and math.huge or tonumber(till),
    slot = tonumber(slot), digest = digest, rest = rest}
end

local function micros(till)
  return till < math.huge and text(till) or 'inf'
end

local function words_of(what)
  return string.format('%s %s %s %s %s', what.id, text(what.fence), micros(what.till), text(what.slot), what.digest)
end

local run, unknown, lapsed = begun(found[2]), begun(found[3]), begun(found[5])
local done_fence, done_till = string.match(found[4] or '', '^(%d+) (%w+)$')
done_fence, done_till = tonumber(done_fence), done_till == 'inf' and math.huge or tonumber(done_till)

local function refusal()
  return tonumber(string.match(run.rest, '(%S+)$'))
end

-- Numbers that come after microseconds have to be whole.
local function after(milliseconds)
  return milliseconds == math.huge and math.huge or time + milliseconds * 1000
end

local function put(field, words)
  if words then
    redis.call('HSET', key, 'kind', 'record', field, words)
  else
    redis.call('HDEL', key, field)
  end
end

if op == 'inspect' then
  if run and run.till <= time then run = nil end
  local kept = done_till and done_till > time and done_till or 0
  local till = math.max(kept, unknown and unknown.till > time and unknown.till or 0)
  if not run and till == 0 and waiting() == 0 then
    return {'unknown'}
  end
  local resets_in = till > 0 and (till < math.huge and till - time or 2 ^ 53) or -1
  local answer = {'inspected', -1, -1, waiting(), resets_in, kept > 0 and 1 or 0, 0, 0}
  if run then
    for _, number in ipairs({-1, run.till < math.huge and run.till - time or -1, run.fence, 1}) do
      answer[#answer + 1] = number
    end
    answer[#answer + 1] = run.id
  end
  return answer
end

local function closed_reply()
  return {'closed', math.ceil(closed() / 1000)}
end

-- In strict mode a run that the data show may be over, and another one may have begun since.
if run and run.id == id and run.till > time and closed() then
  if op == 'acquire' then
    return closed_reply()
  elseif (op == 'renew' or op == 'finish') and is_doubtful(run.till - time) then
    return {'lost'}
  end
end

-- The successes.
local all, has_changed = {}, false
for fence, of, slot, digest, till, waited, bytes in
  string.gmatch(redis.call('HGET', results, 'all') or '', '(%d+):(%x+):([^:]+):([^:]+):(%d+):(%d):(%d+);') do
  all[#all + 1] = {fence = tonumber(fence), id = of, slot = tonumber(slot), digest = digest, till = tonumber(till),
    waited = waited == '1', bytes = tonumber(bytes)}
end

local function kept()
  local last = all[#all]
  return done_fence and last and last.fence == done_fence and last or nil
end

-- Drops the values that nobody gets.
local function shrink()
  for _, success in ipairs(all) do
    if success.bytes > 0 and not success.waited and success ~= kept() then
      redis.call('HDEL', results, text(success.fence))
      success.bytes, has_changed = 0, true
    end
  end
end

local function remove(at)
  redis.call('HDEL', results, text(all[at].fence))
  table.remove(all, at)
  has_changed = true
end

local function forget_results()
  if done_till and done_till <= time then
    put('done', nil)
    done_fence, done_till = nil, nil
  end
  shrink()
  for at = #all, 1, -1 do
    local success = all[at]
    if success.till <= time and success ~= kept() then
      remove(at)
    end
  end
end

local function make_room()
  local room, fits = ROOM, 0
  for at = #all, 1, -1 do
    room = room - all[at].bytes
    if room < 0 or fits == MOST then break end
    fits = fits + 1
  end
  for _ = 1, #all - fits do
    remove(1)
  end
end

local function save_results()
  if not has_changed then return end
  local words = {}
  for at, success in ipairs(all) do
    words[at] = string.format('%s:%s:%s:%s:%s:%d:%d;', text(success.fence), success.id, text(success.slot),
      success.digest, text(success.till), success.waited and 1 or 0, success.bytes)
  end
  if words[1] then
    redis.call('HSET', results, 'all', table.concat(words))
    local last = kept() and math.ceil((done_till - time) / 1000) or 0
    expire(results, math.min(math.max(last, MINUTE), FOR_EVER) + SECOND)
  else
    redis.call('DEL', results)
  end
end

-- Expiry of the key, which is there as long as anything of it counts.
local function keep_key()
  if not run and not unknown and not lapsed and not done_fence and waiting() == 0 then
    redis.call('DEL', key)
    return
  end
  local last = math.max(run and run.till + (refusal() or MINUTE) * 1000 or 0, unknown and unknown.till or 0,
    lapsed and lapsed.till or 0, done_till or 0)
  local milliseconds = math.max(math.ceil((last - time) / 1000), left(lives), left(waiters), 0)
  expire(key, math.min(milliseconds, FOR_EVER) + SECOND)
end

local function finish_with(reply)
  save_results()
  keep_key()
  return reply
end

local function wait_no_longer()
  local ticket = redis.call('ZSCORE', queue, id)
  if ticket and tonumber(ticket) > ended then
    withdraw(id)
  end
end

-- Ends the run without success. Its outcome is unknown if it may not be repeated. Else a success may be on its way.
local function end_run(till)
  local refused = refusal()
  local ended = {id = run.id, fence = run.fence, till = till + (refused or MINUTE) * 1000, slot = run.slot,
    digest = run.digest}
  if refused then
    -- It stands for earlier slots, too.
    ended.till = math.max(ended.till, unknown and unknown.till or 0)
    unknown = ended
  else
    lapsed = ended
  end
  put(refused and 'unknown' or 'lapsed', words_of(ended))
  run = nil
  put('run', nil)
  dismiss()
end

local function give_up()
  if not run or run.id ~= id then return end
  run = nil
  put('run', nil)
  dismiss()
  return true
end

forget(tombstones)
forget_results()
if run and run.till <= time then
  end_run(run.till)
end
if unknown and unknown.till <= time then
  unknown = nil
  put('unknown', nil)
end
if lapsed and lapsed.till <= time then
  lapsed = nil
  put('lapsed', nil)
end
if ARGV[11] == '1' then
  remember(tombstones, id)
end

local every, digest = tonumber(ARGV[6]), ARGV[9]
local slot = -1
if op == 'acquire' and every then
  local from = tonumber(ARGV[7])
  local since = math.max(0, time + tonumber(ARGV[8]) - from)
  slot = since - since % every + from
end

local function agrees(what)
  return what.digest == '-' or digest == '-' or what.digest == digest
end

-- One without a slot counts for all.
local function covers(what, of)
  return what.slot < 0 or of <= what.slot
end

local function value_of(success)
  return redis.call('HGET', results, text(success.fence)) or ''
end

-- The answer to a caller that has waited for a run, or has run itself.
local function answer()
  local told = answer_for(id)
  for at = #all, 1, -1 do
    local success = all[at]
    if success.id == id or told == text(success.fence) then
      if success.id == id or covers(success, slot) then
        if not told then wait_no_longer() end
        return {'finished', value_of(success)}
      end
      break
    end
  end
  if told then
    withdraw(id)
  end
end

-- The reply to a call that neither runs nor waits.
local function settled()
  if remembers(tombstones, id) then
    return {'cancelled'}
  end
  local last = kept()
  if last and covers(last, slot) then
    return agrees(last) and {'finished', value_of(last)} or {'mismatch'}
  elseif unknown and covers(unknown, slot) then
    return {agrees(unknown) and 'lost' or 'mismatch'}
  elseif run and not agrees(run) then
    return {'mismatch'}
  end
end

-- Slots without a success since the last one, or since an outcome that is unknown.
local function missed()
  local last = kept()
  if slot < 0 then
    return 0
  elseif last and last.slot >= 0 then
    return math.max(0, math.floor(math.max(0, slot - last.slot) / every) - 1)
  elseif unknown and unknown.slot >= 0 then
    return math.floor(math.max(0, slot - unknown.slot) / every)
  end
  return 0
end

local function run_reply()
  return {'begun', run.fence, run.slot, tonumber(string.match(run.rest, '^%d+'))}
end

local function save_run()
  put('run', words_of(run) .. ' ' .. run.rest)
end

local function renew_run()
  local till = after(tonumber(ARGV[5]))
  if till > run.till then
    run.till = till
    save_run()
  end
end

local function wait_for(due)
  if live then
    redis.call('HSET', key, 'kind', 'record')
  end
  return watch(due)
end

local function acquire()
  local reply = not remembers(tombstones, id) and answer()
  if reply then
    return reply
  end
  reply = settled()
  if reply then
    wait_no_longer()
    return reply
  elseif run and run.id == id then
    renew_run()
    return run_reply()
  elseif run then
    return wait_for(run.till < math.huge and run.till - time or nil)
  elseif closed() then
    if live then
      return wait_for(closed())
    end
    wait_no_longer()
    return closed_reply()
  end
  wait_no_longer()
  dismiss()
  -- A number from 2^53 on is not of this crate, nor is anything but a number.
  local fence = redis.pcall('GET', last_fence)
  fence = type(fence) == 'string' and tonumber(string.match(fence, '^%d+')) or 0
  fence = math.max(fence < 2 ^ 53 and fence + 1 or 0, time)
  redis.call('SET', last_fence, text(fence))
  run = {id = id, fence = fence, till = after(tonumber(ARGV[5])), slot = slot, digest = digest,
    rest = text(missed()) .. ' ' .. ARGV[10]}
  save_run()
  if lapsed then
    lapsed = nil
    put('lapsed', nil)
  end
  return run_reply()
end

local function renew()
  local late = is_late(tombstones, ARGV[10], ARGV[12])
  if not run or run.id ~= id then
    return {'lost'}
  elseif not late then
    renew_run()
  end
  return {'renewed', run.fence}
end

local function release()
  if is_late(tombstones, ARGV[10], ARGV[12]) or not give_up() then
    return {'not_held'}
  end
  return {'released'}
end

local function cancel()
  withdraw(id)
  give_up()
  -- An outcome that is unknown stays so: it stands for earlier slots, too.
  if lapsed and lapsed.id == id then
    lapsed = nil
    put('lapsed', nil)
  end
  return {'cancelled'}
end

local function evict()
  local anybody = string.match(id, '^0+$')
  if not run or run.fence > tonumber(ARGV[5]) or not anybody and run.id ~= id then
    return {'not_held'}
  end
  end_run(time)
  return {'released'}
end

local function finish_run()
  for _, success in ipairs(all) do
    if success.id == id then
      return {'recorded'}
    end
  end
  local what, value = run and run.id == id and run or unknown and unknown.id == id and unknown, ARGV[6]
  -- In a quiet time another one may have begun that is not seen.
  if not what and lapsed and lapsed.id == id and not closed() then
    what = lapsed
  end
  if not what then
    return {'lost'}
  end
  if lapsed and lapsed.id == id then
    lapsed = nil
    put('lapsed', nil)
  end
  if what == run then
    run = nil
    put('run', nil)
  end
  if unknown and covers(what, unknown.slot) then
    unknown = nil
    put('unknown', nil)
  end
  local waited, keeps, fence = not run and waiting() > 0, tonumber(ARGV[5]), text(what.fence)
  local before = what.slot >= 0 and kept() and done_till or 0
  all[#all + 1] = {fence = what.fence, id = id, slot = what.slot, digest = what.digest, till = time + MINUTE * 1000,
    waited = waited, bytes = (waited or keeps > 0) and #value or 0}
  has_changed = true
  if all[#all].bytes > 0 then
    redis.call('HSET', results, fence, value)
  end
  done_fence, done_till = nil, nil
  if keeps > 0 then
    done_fence, done_till = what.fence, math.max(after(keeps), before)
    put('done', fence .. ' ' .. micros(done_till))
  else
    put('done', nil)
  end
  shrink()
  make_room()
  if not run then
    dismiss(fence)
  end
  return {'recorded'}
end

local operations = {acquire = acquire, renew = renew, release = release, cancel = cancel, evict = evict,
  finish = finish_run}
return finish_with(operations[op]())
