//! The scripts of strict mode agree with the step within the rules of the model.

use super::{
    KEYS, batches,
    comparison::{Bug, Comparison, seed, shows},
    requests::{self, Draw},
};
use locker_harness::RedisServer;

fn assert_agreement(draw: Draw, rounds: usize) {
    let Some(server) = RedisServer::start() else { return };
    let seed = seed();
    let compared = Comparison::start(&server, None, seed).strict().run(draw, rounds);
    let compared = compared.unwrap_or_else(|difference| panic!("LOCKER_TEST_SEED={seed}: {difference}"));
    assert_eq!(compared, rounds * KEYS);
}

#[test]
fn lock() {
    assert_agreement(requests::lock, 200);
}

#[test]
fn named_lock() {
    assert_agreement(requests::named_lock, 200);
}

#[test]
fn semaphore() {
    assert_agreement(requests::semaphore, 120);
}

#[test]
fn record() {
    assert_agreement(requests::record, 200);
}

#[test]
fn batches_of_locks() {
    let Some(server) = RedisServer::start() else { return };
    let seed = seed();
    let taken = batches::run(Comparison::start(&server, None, seed).strict(), requests::lock, 120);
    let taken = taken.unwrap_or_else(|difference| panic!("LOCKER_TEST_SEED={seed}: {difference}"));
    assert!(taken > 120 * KEYS / 100, "only {taken} calls were carried out in batches");
}

const BUGS: [(Draw, Bug); 18] = [
    (requests::lock, ("free lock is granted by the fast part", "if not closed() then\n", "if true then\n")),
    (
        requests::lock,
        ("free lock is granted", "elseif not holder and not closed() then", "elseif not holder then"),
    ),
    (
        requests::lock,
        ("head of the queue is granted it", "not holder and not closed() and", "not holder and"),
    ),
    (requests::lock, ("waiter becomes the holder", "if first and closed() then", "if false then")),
    (
        requests::lock,
        ("hold is granted again", "if closed() and (holder == name or run_answer()) then", "if false then"),
    ),
    (
        requests::lock,
        ("doubtful hold is renewed", "is_doubtful(redis.call('PTTL', KEYS[1]) * 1000)", "false"),
    ),
    (
        requests::lock,
        ("caller learns no time", "if not holder and closed() then return closed_reply() end", ""),
    ),
    (requests::named_lock, ("doubtful hold is renewed", "is_doubtful(left(lock) * 1000)", "false")),
    (requests::semaphore, ("permits are granted", "and not closed() and (overtakes", "and (overtakes")),
    (requests::semaphore, ("waiter becomes a holder", "elseif closed() then", "elseif false then")),
    (
        requests::semaphore,
        ("hold is granted again", "if held_until > time and op == 'acquire' then", "if false then"),
    ),
    (requests::semaphore, ("doubtful hold is renewed", "is_doubtful(held_until - time)", "false")),
    (requests::semaphore, ("doubtful hold is extended", "or is_doubtful(before - time)", "")),
    (requests::record, ("run begins", "elseif closed() then\n    if live", "elseif false then\n    if live")),
    (
        requests::record,
        ("run begins again", "if op == 'acquire' then\n    return closed_reply()", "if false then"),
    ),
    (requests::record, ("doubtful run succeeds", "(op == 'renew' or op == 'finish')", "op == 'renew'")),
    (requests::record, ("doubtful run is renewed", "(op == 'renew' or op == 'finish')", "op == 'finish'")),
    (
        requests::record,
        (
            "caller learns no time",
            "    return closed_reply()\n  end\n  wait_no_longer()",
            "    return {'busy', 0}\n  end\n  wait_no_longer()",
        ),
    ),
];

#[test]
fn seeded_bugs_are_found() {
    let Some(server) = RedisServer::start() else { return };
    let start = |bug, seed| Comparison::start(&server, Some(bug), seed).strict();
    let found = |draw: Draw, bug: Bug| shows(&server, |seed| start(bug, seed).run(draw, 150));
    let missed: Vec<_> =
        BUGS.into_iter().filter(|(draw, bug)| !found(*draw, *bug)).map(|(_, bug)| bug.0).collect();
    assert_eq!(missed, [""; 0]);
    let bug = ("batches grant", "if closed() then\n  local none", "if false then\n  local none");
    let batch = |seed| batches::run(start(bug, seed), requests::lock, 100);
    assert!(shows(&server, batch), "batches");
}
