//! Holds under names that clients choose.

use super::*;

const NAME: Id = Id::ZERO;

impl Bench<State> {
    fn acquire_named(&mut self, id: u128, wait: Option<Wait>) -> Reply {
        self.ask(&HoldRequest::Acquire { id: Id::from(id), lease: LEASE, wait, ask: Some(NAME) })
    }
}

#[test]
fn cancel_ends_only_the_hold_of_its_attempt() {
    let mut lock = Bench::<State>::new();
    lock.acquire_named(1, None);
    lock.cancel(2, true);
    assert_eq!(lock.holder(), Some(NAME), "2 was not granted it");
    lock.cancel(1, false);
    assert_eq!(lock.holder(), None);
    let Reply::Granted { fence } = lock.acquire_named(3, None) else { panic!("it is free") };
    assert_eq!(lock.acquire_named(4, None), Reply::Granted { fence }, "the same hold");
    lock.cancel(3, true);
    lock.cancel(4, true);
    assert_eq!(lock.holder(), Some(NAME), "it belongs to neither");
}

#[test]
fn late_attempt_under_a_name_takes_nothing() {
    let mut lock = Bench::<State>::new();
    lock.cancel(1, true);
    assert_eq!(lock.acquire_named(1, HERE), Reply::Cancelled);
    lock.acquire_named(2, None);
    assert!(matches!(lock.acquire_named(1, HERE), Reply::Granted { .. }));
    lock.cancel(2, false);
    assert_eq!(lock.holder(), None, "the late copy has not made the hold its own");
}

#[test]
fn named_waiter_is_woken_and_not_overtaken() {
    let mut lock = Bench::<State>::new();
    lock.acquire(1, None);
    lock.acquire_named(2, HERE);
    lock.acquire_named(3, HERE);
    lock.release(1);
    assert_eq!(lock.holder(), None, "kept for the first waiter");
    assert!(matches!(lock.acquire(4, None), Reply::Busy { .. }));
    assert!(matches!(lock.acquire(5, UNFAIR), Reply::Queued { .. }));
    lock.acquire(6, HERE);
    lock.notifications.clear();
    let Reply::Granted { fence } = lock.acquire_named(2, HERE) else { panic!("it was woken") };
    let woken: Vec<_> = lock.notifications.iter().map(|told| (told.id, told.signal)).collect();
    assert_eq!(woken, [2, 3].map(|id| (Id::from(id), Signal::Wake)), "those of its name, nobody else");
    assert_eq!(lock.acquire_named(3, HERE), Reply::Granted { fence });
    assert_eq!(lock.state.waiting(), 2);
}
