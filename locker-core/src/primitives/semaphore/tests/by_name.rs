//! Renewals and releases by name, and their late copies.

use super::*;

const NAME: Id = Id::ZERO;

fn by_name(attempt: u128, size: u64) -> Request {
    let ask = Permits { size, permits: 1, key: NAME };
    HoldRequest::Acquire { id: Id::from(attempt), lease: LEASE, wait: None, ask }
}

fn once(attempt: u128, retried: bool) -> IdempotencyKey {
    IdempotencyKey { attempt: Id::from(attempt), retried }
}

fn release_once(attempt: u128, retried: bool) -> Request {
    HoldRequest::Release { id: NAME, tombstone: false, once: Some(once(attempt, retried)) }
}

fn renew_once(attempt: u128, retried: bool, lease: Duration) -> Request {
    HoldRequest::Renew { id: NAME, lease, once: Some(once(attempt, retried)) }
}

#[test]
fn semaphore_ignores_copies_of_a_retried_release() {
    let mut semaphore = Bench::<State>::new();
    semaphore.ask(&by_name(1, 1));
    assert_eq!(semaphore.ask(&release_once(10, true)), Reply::Released);
    semaphore.ask(&by_name(2, 1));
    for retried in [false, true, false] {
        assert_eq!(semaphore.ask(&release_once(10, retried)), Reply::NotHeld);
        assert_eq!(semaphore.state.holders().len(), 1);
    }
    assert_eq!(semaphore.ask(&release_once(11, false)), Reply::Released);
}

/// Its first copy may still arrive when another caller holds the name.
#[test]
fn semaphore_remembers_a_retry_that_missed() {
    let mut semaphore = Bench::<State>::new();
    semaphore.ask(&by_name(1, 1));
    semaphore.ask(&HoldRequest::Evict { of: None, up_to: u64::MAX });
    assert_eq!(semaphore.ask(&release_once(10, true)), Reply::NotHeld);
    semaphore.ask(&by_name(2, 1));
    assert_eq!(semaphore.ask(&release_once(10, false)), Reply::NotHeld);
    assert_eq!(semaphore.state.holders().len(), 1);
}

#[test]
fn semaphore_ignores_copies_of_a_retried_renewal() {
    let (mut semaphore, minute) = (Bench::<State>::new(), Duration::from_secs(60));
    semaphore.ask(&by_name(1, 1));
    assert!(matches!(semaphore.ask(&renew_once(10, true, Duration::MAX)), Reply::Renewed { .. }));
    assert!(matches!(semaphore.ask(&renew_once(11, false, minute)), Reply::Renewed { .. }));
    for retried in [false, true] {
        let late = renew_once(10, retried, Duration::MAX);
        assert!(matches!(semaphore.ask(&late), Reply::Renewed { .. }), "a copy gets the same reply");
        assert_eq!(semaphore.state.holders()[0].3, semaphore.now + minute);
    }
    semaphore.ask(&release_once(12, false));
    assert_eq!(semaphore.ask(&renew_once(10, true, Duration::MAX)), Reply::Lost);
}

/// For a minute.
#[test]
fn semaphore_remembers_only_retries() {
    let mut semaphore = Bench::<State>::new();
    semaphore.ask(&by_name(1, 1));
    semaphore.ask(&renew_once(10, false, LEASE));
    semaphore.ask(&release_once(11, false));
    assert!(semaphore.state.is_idle());
    semaphore.ask(&release_once(11, true));
    assert_eq!(semaphore.state.next_tick(), Some(semaphore.now + TOMBSTONE));
    semaphore.pass(u64::try_from(TOMBSTONE.as_millis()).unwrap());
    semaphore.tick();
    assert!(semaphore.state.is_idle());
}
