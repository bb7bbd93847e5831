//! Settings: which are refused, what a limiter of size 0 does, and what operators see.

use super::*;
use crate::{
    error::ErrorKind,
    primitives::{protocol::GRANT_WINDOW, tests::bench::AWAY},
    ranges::MAX_COUNT,
};

const SECOND: Duration = Duration::from_secs(1);

fn ask(id: u128, tokens: u64, quota: Quota, patience: Duration, wait: Option<Wait>) -> Request {
    Request::Take { id: Id::from(id), tokens, quota, patience, wait }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let bucket = Quota::token_bucket(5, SECOND);
    let most = Quota::gcra(MAX_COUNT, super::super::quota::SHORTEST).burst(MAX_COUNT);
    for (quota, tokens) in [(bucket, 1), (bucket, 5), (most, MAX_COUNT), (Quota::token_bucket(0, SECOND), 7)]
    {
        assert!(quota.check(tokens).is_ok(), "{quota:?} {tokens}");
    }
    let long = Duration::from_secs(20 * 366 * 24 * 3600);
    for (quota, tokens, words) in [
        (Quota::token_bucket(5, Duration::ZERO), 1, "interval is too short: give at least 1µs"),
        (Quota::token_bucket(5, long), 1, "interval"),
        (Quota::token_bucket(MAX_COUNT + 1, SECOND), 1, "is too large: give at most 9007199254740991"),
        (Quota::token_bucket(5, SECOND).burst(3), 1, "burst belongs to gcra"),
        (Quota::gcra(5, SECOND).burst(0), 1, "burst 0 is out of range: give 1 to"),
        (Quota::gcra(5, SECOND).burst(MAX_COUNT + 1), 1, "burst is too large"),
        (Quota::gcra(5, SECOND).burst(u64::MAX), 1, "burst is too large"),
        (bucket, 0, "tokens 0: give at least 1"),
        (bucket, 6, "tokens 6 can never be had at once: at most 5"),
        (Quota::gcra(5, SECOND).burst(3), 4, "tokens 4 can never be had at once: at most 3"),
    ] {
        let error = quota.check(tokens).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn tokens_take_their_part_of_the_interval_with_gcra_alone() {
    assert_eq!(Quota::gcra(4, SECOND).time_of(3), Duration::from_millis(750));
    assert_eq!(Quota::gcra(3, SECOND).time_of(1), Duration::from_micros(333_334), "rounded up");
    assert_eq!(Quota::gcra(0, SECOND).time_of(2), 2 * SECOND);
    assert_eq!(Quota::token_bucket(4, SECOND).time_of(3), Duration::ZERO);
    let sizes = [Quota::gcra(4, SECOND), Quota::gcra(4, SECOND).burst(9), Quota::gcra(0, SECOND).burst(9)];
    assert_eq!(sizes.map(|quota| quota.size()), [4, 9, 0]);
}

#[test]
fn a_limiter_of_size_zero_keeps_those_that_wait() {
    let (stopped, open) = (Quota::token_bucket(0, SECOND), Quota::token_bucket(1, SECOND));
    let away = |seconds| Some(Wait { live: Some(Duration::from_secs(seconds)), fair: true });
    let mut limiter = Bench::<State>::new();
    let refused = limiter.ask(&ask(1, 1, stopped, Duration::MAX, None));
    assert!(matches!(refused, Reply::Limited { retry_after: None, waiting: 0, .. }), "{refused:?}");
    for (id, live, recheck) in [(2, 3, SECOND), (3, 3_000, GRANT_WINDOW)] {
        for _ in 0..2 {
            let reply = limiter.ask(&ask(id, 1, stopped, Duration::MAX, away(live)));
            let expected =
                Reply::Queued { ahead: u64::try_from(id).unwrap() - 2, recheck_after: Some(recheck) };
            assert_eq!(reply, expected, "asking again keeps the place");
        }
    }
    let seen = limiter.state.inspect(limiter.now);
    assert_eq!((seen.size, seen.used, seen.waiting), (Some(0), Some(0), 2));
    // One that does not wait any more leaves.
    let left = limiter.ask(&ask(2, 1, stopped, Duration::MAX, None));
    assert!(matches!(left, Reply::Limited { retry_after: None, waiting: 1, .. }), "{left:?}");
    let opened = limiter.ask(&ask(4, 1, open, Duration::MAX, HERE));
    assert!(matches!(opened, Reply::Admitted { wait: SECOND, .. }), "behind the one that waits: {opened:?}");
    assert_eq!(limiter.notified(), [Id::from(3)]);
    let served = limiter.ask(&ask(3, 1, stopped, Duration::MAX, away(30)));
    assert!(matches!(served, Reply::Admitted { wait: Duration::ZERO, .. }), "{served:?}");
}

#[test]
fn more_than_the_size_is_refused_however_patient_the_caller_is() {
    let mut limiter = Bench::<State>::new();
    let quota = Quota::token_bucket(3, SECOND);
    let refused = limiter.ask(&ask(1, 4, quota, Duration::MAX, HERE));
    assert!(matches!(refused, Reply::Limited { retry_after: None, waiting: 0, .. }), "{refused:?}");
    assert!(matches!(limiter.ask(&ask(2, 3, quota, Duration::ZERO, HERE)), Reply::Admitted { .. }));
    // A caller that waits for more than a lowered size is refused, and woken to learn of it.
    assert!(matches!(
        limiter.ask(&ask(3, 3, quota, Duration::MAX, HERE)),
        Reply::Admitted { wait: SECOND, .. }
    ));
    limiter.ask(&ask(4, 1, Quota::token_bucket(2, SECOND), Duration::ZERO, HERE));
    assert_eq!(limiter.notified(), [Id::from(3)]);
    let told = limiter.ask(&ask(3, 3, quota, Duration::MAX, HERE));
    assert!(matches!(told, Reply::Limited { .. }), "{told:?}");
}

#[test]
fn operators_see_what_is_used_and_for_how_long() {
    let mut limiter = Bench::<State>::new();
    let quota = Quota::fixed_window(3, SECOND);
    limiter.ask(&ask(1, 2, quota, Duration::ZERO, HERE));
    let seen = |limiter: &Bench<State>| {
        let seen = limiter.state.inspect(limiter.now);
        (seen.size.unwrap(), seen.used.unwrap(), seen.waiting, seen.resets_in.unwrap())
    };
    assert_eq!(seen(&limiter), (3, 2, 0, SECOND));
    assert!(limiter.state.is_in_use());
    limiter.pass(400);
    limiter.ask(&ask(2, 3, quota, SECOND, HERE));
    assert_eq!(seen(&limiter), (3, 2, 1, Duration::from_millis(600)));
    limiter.pass(600);
    assert_eq!(seen(&limiter), (3, 3, 0, SECOND), "the reservation is due");
    let end = limiter.state.next_tick().unwrap();
    assert_eq!(limiter.state.users(), 1, "until it is booked");
    limiter.tick();
    assert_eq!((limiter.state.users(), end), (0, limiter.now));
    assert_eq!(limiter.state.next_tick(), Some(limiter.now + SECOND));
    limiter.pass(1_000);
    limiter.tick();
    assert!(!limiter.state.is_in_use() && limiter.state.is_idle() && limiter.state.next_tick().is_none());
}

#[test]
fn quota_says_its_settings() {
    let gcra = Quota::gcra(5, 10 * SECOND);
    assert_eq!((gcra.interval(), gcra.burst(2).interval()), (10 * SECOND, 10 * SECOND));
    let letters = [gcra, Quota::token_bucket(5, SECOND), Quota::fixed_window(5, SECOND)];
    assert_eq!(letters.map(|quota| quota.algorithm.letter()), ['g', 'b', 'w'], "as scripts know them");
}

/// One with a time does not depend on further requests of its caller.
#[test]
fn waiter_without_a_time_keeps_its_place_alive() {
    let mut limiter = Bench::<State>::new();
    let (full, none) = (Quota::token_bucket(1, 100 * SECOND), Quota::token_bucket(0, SECOND));
    limiter.ask(&ask(1, 1, full, Duration::ZERO, None));
    assert!(matches!(limiter.ask(&ask(2, 1, full, 200 * SECOND, AWAY)), Reply::Admitted { .. }));
    assert!(limiter.state.place(Id::from(2)).unwrap() > limiter.now + 31 * SECOND);
    let mut limiter = Bench::<State>::new();
    assert!(matches!(limiter.ask(&ask(1, 1, none, 200 * SECOND, AWAY)), Reply::Queued { .. }));
    assert_eq!(limiter.state.place(Id::from(1)), Some(limiter.now + 30 * SECOND));
}
