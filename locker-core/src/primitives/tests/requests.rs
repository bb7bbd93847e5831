//! What a store reads from a request: whether its retries are marked, the waiter, the name of the hold, and whether
//! time counts for its state while no process is connected.

use super::super::{
    any::Request,
    counter, event,
    hold_kind::HoldKind,
    parts::idempotency::IdempotencyKey,
    protocol::Wait,
    rate_limiter::{self, Quota},
    rwlock::Mode,
    watchdog,
};
use crate::id::Id;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(10);
const KINDS: [HoldKind; 3] =
    [HoldKind::Lock, HoldKind::ReadWrite(Mode::Read), HoldKind::Semaphore { size: 3, permits: 2 }];

const RUN: HoldKind = HoldKind::Record;

fn attempt() -> Id {
    Id::of("attempt")
}

fn once() -> IdempotencyKey {
    IdempotencyKey::new(attempt())
}

#[test]
fn a_retry_is_marked_where_a_late_copy_could_change_something_again() {
    let holds = KINDS.iter().chain([&RUN]).flat_map(|kind| {
        [kind.renew_once(attempt(), LEASE, Some(once())), kind.release_once(attempt(), Some(once()))]
    });
    let others = [
        Request::Event(event::Request::Send { once: once(), message: "now".into(), keep: LEASE }),
        Request::Event(event::Request::Reset { once: once() }),
        Request::Watchdog(watchdog::Request::Kick { once: once(), expires: LEASE }),
        Request::Counter(counter::Request::Set { once: once(), value: 7 }),
        Request::Delete(once()),
    ];
    for mut request in holds.chain(others) {
        let before = format!("{request:?}");
        request.set_retried();
        assert!(before.contains("retried: false"));
        assert_eq!(format!("{request:?}"), before.replace("retried: false", "retried: true"));
    }
    let mut plain = HoldKind::Lock.renew(attempt(), LEASE);
    plain.set_retried();
    assert_eq!(plain, HoldKind::Lock.renew(attempt(), LEASE));
}

#[cfg(feature = "_cas")]
#[test]
fn a_hold_has_a_name_if_the_client_chose_one() {
    let name = Id::of("name");
    for kind in KINDS {
        assert_eq!(kind.acquire(attempt(), LEASE, None).hold_name(), None, "{kind:?}");
        let named = kind.acquire_named(attempt(), Some(name), LEASE, None);
        assert_eq!(named.hold_name(), Some(name), "{kind:?}");
        assert_eq!(kind.renew(attempt(), LEASE).hold_name(), None, "{kind:?}");
    }
}

#[cfg(feature = "_cas")]
#[test]
fn those_that_may_be_queued_are_waiters() {
    let wait = Some(Wait { live: None, fair: true });
    for kind in KINDS.into_iter().chain([RUN]) {
        assert_eq!(kind.acquire(attempt(), LEASE, wait).waiter(), Some(attempt()), "{kind:?}");
        assert_eq!(kind.acquire(attempt(), LEASE, None).waiter(), None, "{kind:?}");
        assert_eq!(kind.release(attempt(), false).waiter(), None, "{kind:?}");
    }
    let ask = |wait| Request::Event(event::Request::Wait { id: attempt(), wait });
    assert_eq!(ask(wait).waiter(), Some(attempt()));
    assert_eq!(ask(None).waiter(), None);
}

#[cfg(feature = "_cas")]
#[test]
fn time_counts_for_limits_while_nobody_is_connected_but_not_for_holds() {
    for kind in KINDS.into_iter().chain([RUN]) {
        assert_eq!(kind.acquire(attempt(), LEASE, None).counts_gaps(), Some(false), "{kind:?}");
    }
    let quota = Quota::token_bucket(1, LEASE);
    let take = rate_limiter::Request::Take { id: attempt(), tokens: 1, quota, patience: LEASE, wait: None };
    assert_eq!(Request::RateLimiter(take).counts_gaps(), Some(true));
    let kick = watchdog::Request::Kick { once: once(), expires: LEASE };
    assert_eq!(Request::Watchdog(kick).counts_gaps(), Some(false));
    assert_eq!(Request::Counter(counter::Request::Get).counts_gaps(), Some(true));
    assert_eq!(Request::Inspect.counts_gaps(), None);
}

#[test]
fn a_reader_takes_one_permit_and_a_writer_all() {
    let (read, write) = (Mode::Read.permits(attempt()), Mode::Write.permits(attempt()));
    assert_eq!((read.permits, write.permits), (1, write.size));
    assert_eq!(read.size, write.size);
}
