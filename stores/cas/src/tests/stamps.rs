//! What values say of themselves: what is held, how old they are, and where a clock begins that is made anew.

use super::*;
use crate::{
    entry::{Latest, Stamped},
    messages::Holds,
    ticked::Next,
    time::Time,
};
use locker_core::primitives::record::{AfterCrash, Ask};
use std::time::SystemTime;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000) + Duration::from_secs(seconds)
}

fn lock() -> Request {
    HoldKind::Lock.acquire(Id::random(), LEASE, None)
}

/// Returns a request to a limit, which refills while no process moves the clock.
fn limit() -> Request {
    let quota = Quota::gcra(2, LEASE);
    let (id, patience) = (Id::random(), Duration::ZERO);
    Request::RateLimiter(rate_limiter::Request::Take { id, tokens: 1, quota, patience, wait: None })
}

/// Returns the value of a key after these requests, with this stamp.
fn value(requests: &[Request], seconds: u64) -> Vec<u8> {
    let (store, key) = (store(&world(), ""), Key::new("k"));
    for request in requests {
        call(&store, &key, request).expect("a reply");
    }
    let stored = Stored::from_bytes(&store.backend.value("k").1).expect("a value");
    Stored { stamp: at(seconds), ..stored }.to_bytes()
}

/// Returns the value of a lock that was deleted.
fn former(seconds: u64) -> Vec<u8> {
    let delete = Request::Delete(IdempotencyKey { attempt: Id::random(), retried: true });
    value(&[lock(), delete], seconds)
}

fn run(id: Id) -> Request {
    let ask = Ask { slots: None, digest: None, after_crash: AfterCrash::RunAgain };
    Request::Record(ask.begin(id, LEASE, None))
}

#[test]
fn value_of_each_format_is_read() {
    for request in [lock(), limit(), run(Id::random())] {
        let stored = Stored::from_bytes(&value(std::slice::from_ref(&request), 7));
        assert_eq!(stored.expect("a value").stamp, at(7), "{request:?}");
    }
}

#[test]
fn value_says_what_is_held() {
    let entry = |request| Stored::from_bytes(&value(&[request], 7)).expect("a value").entry;
    let id = Id::random();
    let (lock, run) = (entry(lock()), entry(run(id)));
    assert!(matches!(lock.holds(), Holds::Lock) && matches!(run.holds(), Holds::Run(one) if one == id));
    for entry in [lock, run] {
        let (fence, until) = entry.exclusive_holder().expect("a holder");
        assert_eq!(fence, entry.last_fence());
        assert_eq!(entry.holds_for(until - LEASE), LEASE);
        assert!(until > Timestamp::default() + LEASE && fence > 1, "{until:?} {fence}");
    }
    let permits = entry(HoldKind::Semaphore { size: 2, permits: 1 }.acquire(id, LEASE, None));
    assert!(matches!(permits.holds(), Holds::Permits) && permits.exclusive_holder().is_none());
    let limit = entry(limit());
    assert!(matches!(limit.holds(), Holds::Nothing) && limit.exclusive_holder().is_none());
}

#[test]
fn clock_begins_no_earlier_than_any_value() {
    let next = |values: &[Vec<u8>]| {
        let mut latest = Latest::default();
        for value in values {
            latest.see(value);
        }
        latest.next()
    };
    let begins = |seconds, gaps| Next { time: at(seconds), gaps: Duration::from_secs(gaps) };
    let lock = |seconds| value(&[lock()], seconds);
    let limit = |seconds| value(&[limit()], seconds);
    assert_eq!(next(&[lock(50), lock(100), lock(70), b"foreign".to_vec()]), begins(100, 0));
    assert_eq!(next(&[limit(130), limit(120)]), begins(130, 0));
    assert_eq!(next(&[limit(130), lock(100)]), begins(100, 30), "limits are ahead by the gaps");
    assert_eq!(next(&[lock(100), former(150)]), begins(100, 50), "nobody knows what it was");
    assert_eq!(next(&[limit(90), lock(100)]), begins(100, 0));
}

#[test]
fn clock_begins_no_earlier_than_a_process_knows() {
    let mut latest = Latest::default();
    latest.see(&value(&[lock()], 100));
    latest.see(&value(&[limit()], 120));
    let known =
        |seconds, gaps| Time { gaps: Duration::from_secs(gaps), ..Time::served(at(seconds), Duration::ZERO) };
    latest.know(&known(110, 25));
    assert_eq!(latest.next(), Next { time: at(110), gaps: Duration::from_secs(25) });
    latest.know(&known(90, 0));
    assert_eq!(latest.next(), Next { time: at(110), gaps: Duration::from_secs(25) });
}

#[test]
fn clock_of_an_empty_store_begins_at_wall_time() {
    let wall = || Timestamp::default() + SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let before = wall();
    let next = Latest::default().next();
    assert!(next.time >= before && next.time <= wall() && next.gaps.is_zero(), "{next:?}");
}

#[test]
fn age_counts_gaps_of_limits_alone() {
    let (five, ten) = (Duration::from_secs(5), Duration::from_secs(10));
    let instant = Duration::from_micros(1);
    let time = Time { gaps: five, ..Time::served(at(110), Duration::ZERO) };
    let values = [(value(&[lock()], 100), ten), (former(100), ten), (value(&[limit()], 100), ten + five)];
    for (value, age) in values {
        let stamped = Stamped::of(&value).expect("a value");
        assert!(stamped.is_past(&time, age) && !stamped.is_past(&time, age + instant), "{stamped:?}");
    }
    assert_eq!(Stamped::of(b"foreign"), None);
}
