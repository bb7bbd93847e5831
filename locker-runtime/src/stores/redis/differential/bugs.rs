//! The comparison is compared: scripts with a bug in them do not agree with the step.

use super::{Bug, compare, requests, requests::Draw, shows};
use locker_harness::RedisServer;

/// Bugs that other implementations have had, and what a slip would make of this one.
const BUGS: [Bug; 24] = [
    (
        "release without looking whose hold it is",
        "redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('ZCARD'",
        "redis.call('EXISTS', KEYS[1]) == 1 and redis.call('ZCARD'",
    ),
    ("no tombstone", "set(tombstone, 1, MINUTE, 'NX')", ""),
    (
        "tombstone not looked at while free",
        "redis.call('EXISTS', KEYS[3], KEYS[6])",
        "redis.call('EXISTS', KEYS[3])",
    ),
    ("tombstone not looked at while contended", "if seen[3] then", "if false then"),
    (
        "free lock taken past the queue",
        "redis.call('EXISTS', KEYS[3], KEYS[6])",
        "redis.call('EXISTS', KEYS[6])",
    ),
    ("no re-check after the pump", "    if run then", "    if false then"),
    ("fence not above the last", "if before and before >= fence then", "if false then"),
    ("fence that counts from 1", "time[1] .. string.sub(time[2] + 1000000, 2)", "'0000000000000001'"),
    (
        "renewal takes a lost lock back",
        "if redis.call('EXISTS', lock) == 0 and",
        "if set(lock, id, ARGV[2], 'NX') then return 'renewed' end\nif redis.call('EXISTS', lock) == 0 and",
    ),
    (
        "renewal gives a waiter a grant with another fence",
        "and not redis.call('ZSCORE', queue, id) then",
        "then",
    ),
    ("dead waiters are served", "return waiter.live_until > time or", "return true or"),
    (
        "last come first served",
        "redis.call('ZRANGE', queue, 0, RUN - 1)",
        "redis.call('ZRANGE', queue, -1, -1)",
    ),
    ("grant without a window", "math.min(first.lease, GRANT_WINDOW)", "first.lease"),
    ("overtaking who keeps its turn", "waiter.mode ~= 'fair'", "true"),
    ("cancel keeps the place", "leave(id)\nlocal holder", "local holder"),
    ("cancel hands nothing over", "if not holder then\n  hand_over()", "if false then"),
    ("last try keeps the place", "if mode == 'no' then\n  leave(id)", "if mode == 'no' then"),
    ("last try is refused what it was woken for", "(overtakes() or head() == id)", "overtakes()"),
    ("queue of the dead kept for ever", "  expire(queue, live)\n", ""),
    ("asking again moves to the end", "if not ticket then", "if true then"),
    ("a repeated eviction ends the next hold", " or tonumber(fence or 0) > tonumber(ARGV[2]) then", " then"),
    ("a grant is handed back that is another's", "holder ~= id and not of_anybody or", ""),
    ("eviction hands nothing over", "hand_over()\nreturn answer", "return answer"),
    (
        "a renewal shortens the lease",
        "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then",
        "if true then",
    ),
];

/// What a slip would make of the other primitives.
const OTHER_BUGS: [(Draw, Bug); 31] = [
    (
        requests::semaphore,
        ("who overtakes hands nothing on", "if overtakes or has_left then", "if has_left then"),
    ),
    (
        requests::semaphore,
        ("who leaves hands nothing on", "if overtakes or has_left then", "if overtakes then"),
    ),
    (requests::semaphore, ("overtaking who keeps its turn", "first_mode ~= 'fair'", "true")),
    (requests::semaphore, ("what can never be had is waited for", "size > 0 and permits > size", "false")),
    (requests::semaphore, ("who is refused may resize", "remember(tombstones, waiter)\n      tell", "tell")),
    (requests::semaphore, ("who is first is not told of an earlier end", "if ends_in and", "if false and")),
    (requests::semaphore, ("a woken head is waited for", "time + GRANT_WINDOW * 1000)", "1e18)")),
    (
        requests::semaphore,
        ("a hold told to another stays the first one's", "if attempt ~= id then", "if false then"),
    ),
    (requests::semaphore, ("a late release counts", "if is_late(tombstones, name, ARGV[11]) or", "if")),
    (
        requests::semaphore,
        ("a late renewal counts", "if is_late(tombstones, name, ARGV[11]) then", "if false then"),
    ),
    (requests::semaphore, ("a grant is handed back that is another's", "(anybody or attempt == id)", "true")),
    (
        requests::semaphore,
        ("who confirms resizes", "id == name or not redis.call('HGET', names, id)", "true"),
    ),
    (requests::semaphore, ("who has waited with another resizes", "    know(of, attempts)\n", "")),
    (requests::semaphore, ("every copy counts", "if repeated == '1' then", "if false then")),
    (requests::semaphore, ("ends are forgotten before the holds", "keep_all(live)", "keep(key, live)")),
    (requests::rate_limiter, ("who looks forgets turns", "if found[5] then", "if false then")),
    (requests::rate_limiter, ("what is left unused is for nobody", "  move_up()\n  save()", "  save()")),
    (requests::rate_limiter, ("who was woken and asks late takes again", "place.woken == 1", "false")),
    (requests::rate_limiter, ("another algorithm begins anew", "at = meter.start, debt", "at = time, debt")),
    (requests::event, ("a late send counts", "if not reply then", "if true then")),
    (requests::event, ("every copy counts", "if ARGV[7] == '1' then", "if false then")),
    (requests::event, ("who waited at a send misses it", "if told then", "if false then")),
    (requests::event, ("what was told is told after a cancel", "leave(id)\nforget_answer(id)", "leave(id)")),
    (requests::watchdog, ("a late kick counts", "if is_late(kicks, id, ARGV[6]) then", "if false then")),
    (requests::watchdog, ("every copy counts", "if repeated == '1' then", "if false then")),
    (requests::counter, ("every copy counts", "if ARGV[6] == '1' then", "if false then")),
    (requests::counter, ("another's sum", "tonumber(answered)", "value")),
    (requests::counter, ("sums that are rounded", "math.abs(by) >= 2 ^ 53 or", "")),
    (
        requests::latch,
        ("who waited is kept by another count", "if remembers(let_through, id) then", "if false then"),
    ),
    (requests::barrier, ("late arrivals count", "ARGV[6] == '1'", "false")),
    (requests::barrier, ("who has left may not come back", "ARGV[6] == '1'", "true")),
];

#[test]
fn seeded_bugs_are_found() {
    let Some(server) = RedisServer::start() else { return };
    let missed: Vec<_> = BUGS
        .into_iter()
        .filter(|bug| !shows(&server, |seed| compare(&server, requests::lock, 150, Some(*bug), seed)))
        .map(|(name, _, _)| name)
        .collect();
    assert_eq!(missed, [""; 0]);
}

#[test]
fn seeded_bugs_of_the_other_primitives_are_found() {
    let Some(server) = RedisServer::start() else { return };
    let found = |draw: Draw, bug: Bug| shows(&server, |seed| compare(&server, draw, 150, Some(bug), seed));
    let missed: Vec<_> =
        OTHER_BUGS.into_iter().filter(|(draw, bug)| !found(*draw, *bug)).map(|(_, bug)| bug.0).collect();
    assert_eq!(missed, [""; 0]);
}
