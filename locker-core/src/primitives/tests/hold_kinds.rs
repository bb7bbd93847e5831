//! What the kinds of holds refuse, wait for and ask.

use super::super::{any::Request, hold_kind::HoldKind, protocol::Reply, rwlock::Mode};
use crate::{error::ErrorKind, id::Id};
use std::time::Duration;

const LOCK: HoldKind = HoldKind::Lock;
const READ: HoldKind = HoldKind::ReadWrite(Mode::Read);
const WRITE: HoldKind = HoldKind::ReadWrite(Mode::Write);
const RUN: HoldKind = HoldKind::Record;

fn permits(permits: u64, size: u64) -> HoldKind {
    HoldKind::Semaphore { size, permits }
}

#[test]
fn permits_that_can_never_be_had_are_refused() {
    for kind in [LOCK, READ, WRITE, permits(1, 2), permits(2, 2), permits(5, 0)] {
        assert!(kind.check().is_ok(), "{kind:?}");
    }
    for (kind, words) in [
        (permits(0, 2), "permits 0: take at least 1"),
        (permits(0, 0), "permits 0: take at least 1"),
        (permits(3, 2), "permits 3 can never be had at once: there are 2"),
        (permits(2, 1), "permits 2 can never be had at once: there are 1"),
    ] {
        let error = kind.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_hold_waits_for_what_it_excludes() {
    for (kind, held, waits) in [
        (LOCK, &[][..], false),
        (LOCK, &[LOCK], true),
        (LOCK, &[READ, permits(1, 1)], false),
        (READ, &[], false),
        (READ, &[READ, READ], false),
        (READ, &[READ, WRITE], true),
        (WRITE, &[], false),
        (WRITE, &[READ], true),
        (WRITE, &[WRITE], true),
        (WRITE, &[LOCK, permits(1, 1)], false),
        (permits(1, 2), &[], false),
        (permits(3, 2), &[], false),
        (permits(1, 2), &[permits(1, 2)], false),
        (permits(2, 2), &[permits(1, 2)], true),
        (permits(1, 2), &[permits(1, 2), permits(1, 2)], true),
        (permits(1, 2), &[permits(2, 3)], false),
        (permits(2, 2), &[permits(2, 3)], true),
        (permits(1, 3), &[permits(2, 2)], false),
        (permits(1, 0), &[permits(2, 2)], false),
        (permits(2, 2), &[LOCK, WRITE], false),
        (RUN, &[LOCK, WRITE, permits(1, 1)], false),
        (RUN, &[RUN], true),
    ] {
        assert_eq!(kind.waits_for(held.iter().copied()), waits, "{kind:?} while {held:?}");
    }
}

#[test]
fn a_lowered_size_is_told_apart_from_a_cancel() {
    assert_eq!(permits(3, 4).refusal(&Reply::Cancelled).kind(), ErrorKind::Misused);
    for kind in [LOCK, WRITE] {
        assert_ne!(kind.refusal(&Reply::Cancelled).kind(), ErrorKind::Misused, "{kind:?}");
    }
    assert_ne!(permits(3, 4).refusal(&Reply::WrongKind).kind(), ErrorKind::Misused);
}

#[test]
fn locks_and_semaphores_are_asked_each_by_their_requests() {
    let (id, lease) = (Id::of("attempt"), Duration::from_secs(10));
    let requests = |kind: HoldKind| {
        [kind.acquire(id, lease, None), kind.renew(id, lease), kind.release(id, true), kind.cancel(id, true)]
    };
    assert!(requests(LOCK).iter().all(|request| matches!(request, Request::Lock(_))));
    assert!(requests(RUN).iter().all(|request| matches!(request, Request::Record(_))));
    for kind in [READ, WRITE, permits(1, 2)] {
        assert!(requests(kind).iter().all(|request| matches!(request, Request::Semaphore(_))), "{kind:?}");
    }
}

#[test]
fn kinds_say_their_permits_and_releases() {
    let kinds = [LOCK, RUN, READ, permits(3, 4), permits(1, 0)];
    assert_eq!(kinds.map(HoldKind::permit_count), [1, 1, 1, 3, 1]);
    assert!(WRITE.permit_count() > 1_000_000, "more than there are readers");
    for kind in [LOCK, READ, WRITE, permits(1, 2)] {
        assert!(kind.may_be_released_when_lost(), "{kind:?}");
    }
    assert!(!RUN.may_be_released_when_lost(), "the release of a run says that it has failed");
}
