//! Steps for the waiters of several processes, at a time that is not known exactly.

use super::bench::{AWAY, Bench};
use crate::{
    clock::Timestamp,
    id::Id,
    primitives::{
        event,
        hold_kind::HoldKind,
        lock,
        parts::{hold_request::HoldRequest, idempotency::IdempotencyKey},
        protocol::{GRANT_WINDOW, Notification, Reply, Signal},
        semaphore,
        state::State,
        watchdog,
    },
};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(60);
const SPREAD: Duration = Duration::from_millis(5);
const HERE: u32 = 0x1111_1111;
const ELSEWHERE: u32 = 0x2222_2222;
const ENDED: u32 = 0x3333_3333;

fn id(inbox: u32, number: u128) -> Id {
    Id::from(u128::from(inbox) << 96 | number)
}

/// A state, seen by one of the processes.
fn bench<S: State>() -> Bench<S> {
    let mut bench = Bench::new();
    (bench.spread, bench.inbox, bench.gone) = (SPREAD, Some(HERE), vec![ENDED]);
    bench
}

/// The two primitives that hand over.
trait Held: State {
    fn acquire(id: Id) -> Self::Request;
    fn release(id: Id) -> Self::Request;
    fn renew(id: Id) -> Self::Request;
    fn holds(&self) -> Vec<(Id, u64, Timestamp)>;
}

impl Held for lock::State {
    fn acquire(id: Id) -> Self::Request {
        HoldRequest::Acquire { id, lease: LEASE, wait: AWAY, ask: None }
    }

    fn release(id: Id) -> Self::Request {
        HoldRequest::Release { id, tombstone: false, once: None }
    }

    fn renew(id: Id) -> Self::Request {
        HoldRequest::Renew { id, lease: LEASE, once: None }
    }

    fn holds(&self) -> Vec<(Id, u64, Timestamp)> {
        self.holder().into_iter().collect()
    }
}

impl Held for semaphore::State {
    fn acquire(id: Id) -> Self::Request {
        let ask = semaphore::Permits { size: 1, permits: 1, key: id };
        HoldRequest::Acquire { id, lease: LEASE, wait: AWAY, ask }
    }

    fn release(id: Id) -> Self::Request {
        HoldRequest::Release { id, tombstone: false, once: None }
    }

    fn renew(id: Id) -> Self::Request {
        HoldRequest::Renew { id, lease: LEASE, once: None }
    }

    fn holds(&self) -> Vec<(Id, u64, Timestamp)> {
        self.holders().into_iter().map(|(name, fence, _, until)| (name, fence, until)).collect()
    }
}

fn holds_end_after_the_spread<S: Held>() {
    let mut bench = bench::<S>();
    let one = id(ELSEWHERE, 1);
    bench.ask(&S::acquire(one));
    assert_eq!(bench.state.holds()[0].2, bench.now + SPREAD + LEASE, "of a grant");
    bench.pass(1_000);
    bench.ask(&S::renew(one));
    assert_eq!(bench.state.holds()[0].2, bench.now + SPREAD + LEASE, "of a renewal");
    assert_eq!(bench.state.held_until(), bench.now + SPREAD + LEASE);
}

fn waiter_of_this_process_has_nothing_to_confirm<S: Held>() {
    let mut bench = bench::<S>();
    bench.ask(&S::acquire(id(ELSEWHERE, 1)));
    bench.ask(&S::acquire(id(HERE, 2)));
    assert_eq!(bench.state.place(id(HERE, 2)), Some(bench.now + Duration::from_secs(30)));
    bench.ask(&S::release(id(ELSEWHERE, 1)));
    let [(holder, fence, until)] = bench.state.holds()[..] else { panic!("{:?}", bench.state.holds()) };
    assert_eq!((holder, until), (id(HERE, 2), bench.now + SPREAD + LEASE));
    let signal = Signal::HandedOff { fence, until: bench.now + LEASE };
    assert_eq!(signals(&mut bench), [(holder, signal)], "its process counts without the spread");
    // Asking again must not prolong the hold, which a confirmation would.
    bench.pass(1_000);
    bench.ask(&S::acquire(holder));
    assert_eq!(bench.state.holds(), [(holder, fence, until)]);
}

fn waiter_of_another_process_confirms<S: Held>() {
    let mut bench = bench::<S>();
    bench.ask(&S::acquire(id(HERE, 1)));
    bench.ask(&S::acquire(id(ELSEWHERE, 2)));
    bench.ask(&S::release(id(HERE, 1)));
    let [(holder, fence, until)] = bench.state.holds()[..] else { panic!("{:?}", bench.state.holds()) };
    assert_eq!((holder, until), (id(ELSEWHERE, 2), bench.now + SPREAD + GRANT_WINDOW));
    assert_eq!(signals(&mut bench), [(holder, Signal::Granted { fence })]);
}

fn waiters_of_an_ended_process_are_passed_over<S: Held>() {
    let mut bench = bench::<S>();
    bench.ask(&S::acquire(id(HERE, 1)));
    bench.ask(&S::acquire(id(ENDED, 2)));
    bench.ask(&S::acquire(id(ENDED, 3)));
    bench.ask(&S::acquire(id(ELSEWHERE, 4)));
    bench.ask(&S::release(id(HERE, 1)));
    assert_eq!(bench.state.holds()[0].0, id(ELSEWHERE, 4));
    assert_eq!((bench.state.users(), bench.state.place(id(ENDED, 3))), (1, None));
}

fn fences_start_at_the_floor<S: Held>() {
    let mut bench = bench::<S>();
    bench.floor = 5_000_000_000;
    assert_eq!(bench.ask(&S::acquire(id(HERE, 1))), Reply::Granted { fence: 5_000_000_000 });
    bench.ask(&S::release(id(HERE, 1)));
    assert_eq!(bench.ask(&S::acquire(id(HERE, 2))), Reply::Granted { fence: 5_000_000_001 });
    bench.state.raise_fence(u64::MAX);
    bench.ask(&S::release(id(HERE, 2)));
    assert_eq!(bench.ask(&S::acquire(id(HERE, 3))), Reply::Granted { fence: u64::MAX }, "no overflow");
}

fn signals<S>(bench: &mut Bench<S>) -> Vec<(Id, Signal)> {
    bench.notifications.drain(..).map(|Notification { id, signal, .. }| (id, signal)).collect()
}

#[test]
fn lock_knows_processes() {
    holds_end_after_the_spread::<lock::State>();
    waiter_of_this_process_has_nothing_to_confirm::<lock::State>();
    waiter_of_another_process_confirms::<lock::State>();
    waiters_of_an_ended_process_are_passed_over::<lock::State>();
    fences_start_at_the_floor::<lock::State>();
}

#[test]
fn semaphore_knows_processes() {
    holds_end_after_the_spread::<semaphore::State>();
    waiter_of_this_process_has_nothing_to_confirm::<semaphore::State>();
    waiter_of_another_process_confirms::<semaphore::State>();
    waiters_of_an_ended_process_are_passed_over::<semaphore::State>();
    fences_start_at_the_floor::<semaphore::State>();
}

/// A name of a client is not the id of the attempt, whose process counts.
#[test]
fn waiter_with_a_name_is_handed_its_permits() {
    let mut bench = bench::<semaphore::State>();
    let (kind, name) = (HoldKind::Semaphore { size: 1, permits: 1 }, Id::of("client"));
    let acquire = |id, name| match kind.acquire_named(id, name, LEASE, AWAY) {
        crate::primitives::Request::Semaphore(request) => request,
        other => panic!("{other:?}"),
    };
    bench.ask(&acquire(id(ELSEWHERE, 1), None));
    bench.ask(&acquire(id(HERE, 2), Some(name)));
    bench.ask(&semaphore::State::release(id(ELSEWHERE, 1)));
    let (holder, fence, until) = bench.state.holds()[0];
    assert_eq!((holder, until), (name, bench.now + SPREAD + LEASE));
    let signal = Signal::HandedOff { fence, until: bench.now + LEASE };
    assert_eq!(signals(&mut bench), [(id(HERE, 2), signal)]);
}

/// The lease of a late copy is over, so it does not even add the spread.
#[test]
fn late_renewal_of_a_lock_prolongs_nothing() {
    let mut bench = bench::<lock::State>();
    let holder = id(HERE, 1);
    let lease = Duration::from_secs(10);
    let renew = |retried| {
        let once = Some(IdempotencyKey { attempt: id(HERE, 9), retried });
        HoldRequest::Renew { id: holder, lease, once }
    };
    bench.ask(&HoldRequest::Acquire { id: holder, lease, wait: AWAY, ask: None });
    bench.ask(&renew(true));
    let until = bench.state.holds()[0].2;
    bench.now = until - Duration::from_millis(1);
    bench.ask(&renew(false));
    assert_eq!(bench.state.holds()[0].2, until);
}

#[test]
fn deadline_and_message_last_for_the_spread() {
    let mut watchdog = bench::<watchdog::State>();
    watchdog.ask(&watchdog::Request::Wait { id: id(HERE, 1), wait: AWAY });
    let left = |bench: &Bench<watchdog::State>| bench.state.inspect(bench.now).resets_in;
    assert_eq!(left(&watchdog), Some(SPREAD + watchdog::FIRST_RUN));
    watchdog.pass(10);
    let once = IdempotencyKey::new(id(HERE, 2));
    watchdog.ask(&watchdog::Request::Kick { once, expires: LEASE });
    assert_eq!(left(&watchdog), Some(SPREAD + LEASE));

    let mut event = bench::<event::State>();
    event.ask(&event::Request::Send { once, message: "sent".into(), keep: LEASE });
    assert_eq!(event.state.inspect(event.now).resets_in, Some(SPREAD + LEASE));
}
