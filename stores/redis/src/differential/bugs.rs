//! The comparison finds seeded bugs: a script with a bug does not agree with the step.

use super::{
    comparison::{Bug, Comparison, shows},
    requests::{self, Draw},
};
use locker_harness::RedisServer;

/// Bugs of other implementations, and plausible bugs of this one.
const BUGS: [Bug; 33] = [
    (
        "release of the hold of another id",
        "if not found or string.sub(found, 1, 32) ~= ARGV[1] then",
        "if not found then",
    ),
    ("no tombstone", "string.format('%.0f', -time - MINUTE * 1000), 'x' .. attempt", "1, 'y'"),
    ("tombstone ignored", "if is_late then\n  return 'cancelled'", "if false then"),
    ("tombstone lasts as long as the queue", "till and -tonumber(till) > time", "till"),
    ("tombstone goes with the queue", "    expire(queue, MINUTE)", "    expire(queue, 1000)"),
    ("free lock taken past the queue", "if redis.call('EXISTS', KEYS[2]) == 0 then", "if true then"),
    ("waiter leaves no sign at the hold", "if sign == '' then", "if false then"),
    ("grant to a waiter has no sign", "hold(run, fence, ' *', 'PX'", "hold(run, fence, '', 'PX'"),
    ("overtaking grant has no sign", "' *' or count_waiters() > 0 and ' +' or ''", "' *' or ''"),
    ("quick release ignores the sign", "if #found > 32 and string.byte(found, -1) > 47 then", "if true then"),
    ("quick answer says busy to the holder", "and holder ~= ARGV[1] then", "then"),
    ("no re-check after waiters were granted", "    if run then", "    if false then"),
    ("fence not above the last", "elseif before and before >= fence then", "elseif false then"),
    (
        "fence of a waiter not above the last",
        "return math.max(last < 2 ^ 53 and last + 1 or 0, time)",
        "return time",
    ),
    ("fence that counts from 1", "time[1] .. string.sub(time[2] + 1000000, 2)", "'0000000000000001'"),
    (
        "renewal takes a lost lock back",
        "if redis.call('EXISTS', lock) == 0 and",
        "if set(lock, id, ARGV[2], 'NX') then return 'renewed' end\nif redis.call('EXISTS', lock) == 0 and",
    ),
    ("renewal gives a waiter a grant with another fence", "and not place(id) then", "then"),
    ("dead waiters are served", "return waiter.live_until > time or", "return true or"),
    (
        "last waiters are listed",
        "redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'LIMIT', 0, 100)",
        "redis.call('ZREVRANGEBYSCORE', queue, '+inf', 0, 'LIMIT', 0, 100)",
    ),
    (
        "the last waiter is served first",
        "redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'LIMIT', 0, RUN)",
        "redis.call('ZRANGE', queue, -1, -1)",
    ),
    ("grant without a window", "math.min(first.lease, GRANT_WINDOW)", "first.lease"),
    ("woken waiter is waited for too long", "first and math.max(", "false and math.max("),
    ("fair waiter is overtaken", "waiter.mode == 'unfair' or waiter.mode == 'woken'", "true"),
    ("cancel keeps the place", "leave(id)\nlocal holder", "local holder"),
    (
        "cancel grants nothing to the next waiter",
        "if is_its or not holder then\n  hand_over(is_its)",
        "if false then",
    ),
    ("final check keeps the place", "if mode == 'no' then\n  leave(id)", "if mode == 'no' then"),
    ("final check is refused after its wake-up", "(overtakes() or head() == id)", "overtakes()"),
    ("queue of dead waiters never expires", "  expire(waiters, live)\n", ""),
    ("repeated acquire moves to the end", "if not ticket then", "if true then"),
    ("repeated eviction ends the next hold", " or (fence or 0) > tonumber(ARGV[2]) then", " then"),
    ("grant of another id is returned", "holder ~= id and not of_anybody or", ""),
    ("eviction grants nothing to the next waiter", "hand_over(true)\nreturn answer", "return answer"),
    ("renewal shortens the lease", "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then", "if true then"),
];

/// Plausible bugs of the other primitives.
const OTHER_BUGS: [(Draw, Bug); 55] = [
    (
        requests::barrier,
        ("arrivals count after the last round", "if ARGV[6] == '1' and is_closed then", "if false then"),
    ),
    (requests::barrier, ("last round is forgotten", "and not is_closed then", "then")),
    (
        requests::named_lock,
        ("shared hold stays with the first attempt", "(attempt_of(name, recorded) or id) ~= id", "false"),
    ),
    (
        requests::named_lock,
        ("cancel keeps the hold of its name", "attempt_of(holder, record_of(sign)) == id", "false"),
    ),
    (
        requests::named_lock,
        ("cancel ends the hold of another attempt", "attempt_of(holder, record_of(sign)) == id", "true"),
    ),
    (
        requests::named_lock,
        (
            "attempt that got the hold stays in the queue",
            "if name ~= id and not is_late then\n    leave(id)",
            "if name ~= id and not is_late then",
        ),
    ),
    (
        requests::named_lock,
        (
            "named waiter is overtaken",
            "waiter.mode == 'unfair' or waiter.mode == 'woken'",
            "waiter.mode ~= 'fair'",
        ),
    ),
    (requests::named_lock, ("a late release counts", "is_late or holder ~= name", "holder ~= name")),
    (
        requests::named_lock,
        ("every copy of a change counts", "if ARGV[3] == '1' then\n  refuse(id)", "if false then"),
    ),
    (
        requests::semaphore,
        ("overtaking grants nothing to the next waiter", "if overtakes or has_left then", "if has_left then"),
    ),
    (
        requests::semaphore,
        ("leaving grants nothing to the next waiter", "if overtakes or has_left then", "if overtakes then"),
    ),
    (requests::semaphore, ("fair waiter is overtaken", "first_mode ~= 'fair'", "true")),
    (
        requests::semaphore,
        (
            "last waiters are listed",
            "redis.call('ZRANGE', queue, 0, 99)",
            "redis.call('ZRANGE', queue, 1, 99)",
        ),
    ),
    (requests::semaphore, ("too large request waits", "size > 0 and permits > size", "false")),
    (requests::semaphore, ("refused waiter may resize", "remember(tombstones, waiter)\n      tell", "tell")),
    (requests::semaphore, ("first waiter gets no earlier recheck", "if ends_in and", "if false and")),
    (requests::semaphore, ("woken waiter is waited for too long", "first and first ~= id and", "false and")),
    (requests::semaphore, ("woken waiter blocks the queue", "time + GRANT_WINDOW * 1000)", "1e18)")),
    (requests::semaphore, ("waiters of a silent process are served", "or is_silent(to) then", "then")),
    (requests::semaphore, ("grant that passes is forgotten", "    silence(unconfirmed)\n", "")),
    (requests::semaphore, ("process that asks is passed over", "op == 'acquire' and of == channel", "false")),
    (
        requests::semaphore,
        ("shared hold stays with the first attempt", "if attempt ~= id then", "if false then"),
    ),
    (requests::semaphore, ("a late release counts", "if is_late(tombstones, name, ARGV[11]) or", "if")),
    (
        requests::semaphore,
        ("a late renewal counts", "if is_late(tombstones, name, ARGV[11]) then", "if false then"),
    ),
    (requests::semaphore, ("grant of another attempt is returned", "(anybody or attempt == id)", "true")),
    (
        requests::semaphore,
        ("confirmation resizes", "id == name or not redis.call('HGET', names, id)", "true"),
    ),
    (requests::semaphore, ("other waiter of the same name resizes", "    know(of, attempts)\n", "")),
    (requests::semaphore, ("every copy counts", "if repeated == '1' then", "if false then")),
    (requests::semaphore, ("hold that is over is renewed", "or before <= time or", "or")),
    (requests::semaphore, ("shorter hold reminds no waiter", "or after < before or", "or")),
    (requests::semaphore, ("expiries are forgotten before the holds", "keep_all(live)", "keep(key, live)")),
    (requests::rate_limiter, ("inspection forgets reservations", "if found[5] then", "if false then")),
    (requests::rate_limiter, ("unused reservation is lost", "  move_up()\n  save()", "  save()")),
    (
        requests::rate_limiter,
        ("late request of a woken waiter is admitted again", "place.woken == 1", "false"),
    ),
    (
        requests::rate_limiter,
        ("change of algorithm resets the use", "at = meter.start, debt", "at = time, debt"),
    ),
    (requests::event, ("a late send counts", "if not reply then", "if true then")),
    (requests::event, ("every copy counts", "if ARGV[7] == '1' then", "if false then")),
    (requests::event, ("waiter misses its send", "if told then", "if false then")),
    (requests::event, ("waiter gets the latest send", "rounds, ticket, '+inf'", "rounds, ended, '+inf'")),
    (
        requests::event,
        ("answer outlives its minute", "if round and not is_over(round) then", "if round then"),
    ),
    (
        requests::event,
        ("answer ends before its minute", "tonumber(ticket) > ended then return end", "true then return end"),
    ),
    (requests::event, ("late waiter gets an earlier answer", "or ended) + 1", "or 0) + 1")),
    (requests::event, ("silent waiters are told", "redis.call('EXISTS', lives) == 0 and head()", "false")),
    (
        requests::event,
        ("cancelled waiter keeps its reply", "withdraw(id)\nif not found[2]", "if not found[2]"),
    ),
    (requests::event, ("dead waiter gets an answer", "if dead[1] then", "if false then")),
    (
        requests::latch,
        ("dead waiter counts", "'ZRANGEBYSCORE', name, '-inf'", "'ZRANGEBYSCORE', name, 'inf'"),
    ),
    (requests::watchdog, ("earlier deadline wakes nobody", "deadline < old then", "false then")),
    (requests::watchdog, ("a late kick counts", "if is_late(kicks, id, ARGV[6]) then", "if false then")),
    (requests::watchdog, ("every copy counts", "if repeated == '1' then", "if false then")),
    (requests::counter, ("every copy counts", "if ARGV[6] == '1' then", "if false then")),
    (requests::counter, ("sum of another addition", "tonumber(answered)", "value")),
    (requests::counter, ("rounded sum", "math.abs(by) >= 2 ^ 53 or", "")),
    (
        requests::latch,
        ("released waiter is held by another count", "if answer_for(id) then", "if false then"),
    ),
    (
        requests::barrier,
        ("late arrivals count", "if ARGV[6] == '1' and not has_passed() then", "if false then"),
    ),
    (
        requests::barrier,
        (
            "cancelled arrival may not come back",
            "elseif ARGV[6] ~= '1' then\n    withdraw(id)",
            "else\n    withdraw(id)\n    remember(passed, id)\n  end\n  if false then",
        ),
    ),
];

/// Plausible bugs of the record.
const BUGS_OF_RECORDS: [(Draw, Bug); 31] = [
    (
        requests::record,
        (
            "another digest is not compared",
            "what.digest == '-' or digest == '-' or what.digest == digest",
            "true",
        ),
    ),
    (
        requests::record,
        (
            "earlier slot runs again",
            "if last and covers(last, slot) then",
            "if last and (last.slot < 0 or slot == last.slot) then",
        ),
    ),
    (requests::record, ("nothing is early", "tonumber(ARGV[8])", "0")),
    (requests::record, ("result does not count for slots", "what.slot < 0 or of <=", "of <=")),
    (
        requests::record,
        ("waiter misses its result", "success.id == id or told == text(success.fence)", "success.id == id"),
    ),
    (requests::record, ("late call of a run begins another one", "success.id == id or told ==", "told ==")),
    (
        requests::record,
        (
            "waiter gets the result of an earlier slot",
            "if success.id == id or covers(success, slot) then",
            "if true then",
        ),
    ),
    (
        requests::record,
        (
            "late copy of a call begins in the next slot",
            "if success.id == id or covers(success, slot) then",
            "if covers(success, slot) then",
        ),
    ),
    (requests::record, ("shorter slots end what counts", "math.max(after(keeps), before)", "after(keeps)")),
    (
        requests::record,
        ("late success is lost, although nothing has begun", "what = lapsed\n", "what = nil\n"),
    ),
    (
        requests::record,
        (
            "late success counts beside another run",
            "  if lapsed then\n    lapsed = nil\n    put('lapsed', nil)\n  end\n  return run_reply()",
            "  return run_reply()",
        ),
    ),
    (
        requests::record,
        (
            "cancelled run may succeed",
            "lapsed = nil\n    put('lapsed', nil)\n  end\n  return {'cancelled'}",
            "end\n  return {'cancelled'}",
        ),
    ),
    (requests::record, ("crashed run is repeated", "local refused = refusal()", "local refused = nil")),
    (
        requests::record,
        (
            "unknown outcome is one of all slots",
            "elseif unknown and covers(unknown, slot) then",
            "elseif unknown then",
        ),
    ),
    (
        requests::record,
        ("late success is lost", "or unknown and unknown.id == id and unknown, ARGV[6]", "or nil, ARGV[6]"),
    ),
    (
        requests::record,
        ("repeated success is lost", "if success.id == id then\n      return", "if false then\n      return"),
    ),
    (
        requests::record_with_large_results,
        ("results for waiters have no bound", "if room < 0 or fits == MOST then break end", ""),
    ),
    (
        requests::record,
        ("slot after a success is missed", "last.slot) / every) - 1)", "last.slot) / every))"),
    ),
    (
        requests::record,
        (
            "unknown slot is not missed",
            "return math.floor(math.max(0, slot - unknown.slot) / every)",
            "return 0",
        ),
    ),
    (
        requests::record,
        ("end of the lease wakes nobody", "  put('run', nil)\n  dismiss()\nend", "  put('run', nil)\nend"),
    ),
    (
        requests::record,
        (
            "failure wakes nobody",
            "  put('run', nil)\n  dismiss()\n  return true",
            "  put('run', nil)\n  return true",
        ),
    ),
    (requests::record, ("renewal shortens the lease", "if till > run.till then", "if true then")),
    (requests::record, ("cancelled waiter keeps its result", "withdraw(id)\n  give_up()", "give_up()")),
    (
        requests::record,
        (
            "cancelled attempt runs",
            "if remembers(tombstones, id) then\n    return {'cancelled'}",
            "if false then\n    return {'cancelled'}",
        ),
    ),
    (requests::record, ("fence not above the last", "fence < 2 ^ 53 and fence + 1 or 0, time", "0, time")),
    (requests::record, ("eviction ends another run", "or not anybody and run.id ~= id then", "then")),
    (
        requests::record,
        ("run is forgotten before its outcome", "run.till + (refusal() or MINUTE) * 1000", "run.till"),
    ),
    (
        requests::record,
        (
            "a late release counts",
            "if is_late(tombstones, ARGV[10], ARGV[12]) or not give_up()",
            "if not give_up()",
        ),
    ),
    (requests::record, ("a late renewal counts", "elseif not late then", "else")),
    (
        requests::record,
        (
            "late success of a slot is for the waiters of the next",
            "  if not run then\n    dismiss(fence)",
            "  if true then\n    dismiss(fence)",
        ),
    ),
    (
        requests::record,
        ("result outlives its time", "if done_till and done_till <= time then", "if false then"),
    ),
];

/// Returns the names of the bugs that no comparison shows.
fn missed(bugs: impl IntoIterator<Item = (Draw, Bug)>) -> Vec<&'static str> {
    let Some(server) = RedisServer::start() else { return Vec::new() };
    let shown = |draw: Draw, bug: Bug| {
        shows(&server, |seed| Comparison::start(&server, Some(bug), seed).run(draw, 150))
    };
    bugs.into_iter().filter(|(draw, bug)| !shown(*draw, *bug)).map(|(_, bug)| bug.0).collect()
}

#[test]
fn seeded_bugs_are_found() {
    let bugs = BUGS.map(|bug| (requests::lock as Draw, bug));
    assert_eq!(missed(bugs), [""; 0]);
}

#[test]
fn seeded_bugs_of_other_primitives_are_found() {
    assert_eq!(missed(OTHER_BUGS), [""; 0]);
}

#[test]
fn seeded_bugs_of_records_are_found() {
    assert_eq!(missed(BUGS_OF_RECORDS), [""; 0]);
}
