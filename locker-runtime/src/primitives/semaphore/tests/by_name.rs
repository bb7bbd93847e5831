//! What is renewed and released by name, and copies of it that come late.

use super::*;

const NAME: Id = Id::ZERO;

fn by_name(attempt: u128, size: u64) -> Request {
    let ask = Permits { size, permits: 1, key: NAME };
    HoldRequest::Acquire { id: Id::from(attempt), lease: LEASE, wait: None, ask }
}

fn once(attempt: u128, repeated: bool) -> IdempotencyKey {
    IdempotencyKey { attempt: Id::from(attempt), repeated }
}

fn release_once(attempt: u128, repeated: bool) -> Request {
    HoldRequest::Release { id: NAME, tombstone: false, once: Some(once(attempt, repeated)) }
}

fn renew_once(attempt: u128, repeated: bool, lease: Duration) -> Request {
    HoldRequest::Renew { id: NAME, lease, once: Some(once(attempt, repeated)) }
}

#[test]
fn of_a_release_by_name_no_copy_counts_after_a_repeated_one() {
    let mut semaphore = Bench::<State>::new();
    semaphore.ask(&by_name(1, 1));
    assert_eq!(semaphore.ask(&release_once(10, true)), Reply::Released);
    semaphore.ask(&by_name(2, 1));
    for repeated in [false, true, false] {
        assert_eq!(semaphore.ask(&release_once(10, repeated)), Reply::NotHeld);
        assert_eq!(semaphore.state.holders().len(), 1);
    }
    assert_eq!(semaphore.ask(&release_once(11, false)), Reply::Released);
}

/// Its first copy may still come when another holds under the name.
#[test]
fn a_repeated_release_that_finds_nothing_is_remembered_as_well() {
    let mut semaphore = Bench::<State>::new();
    semaphore.ask(&by_name(1, 1));
    semaphore.ask(&HoldRequest::Evict { of: None, up_to: u64::MAX });
    assert_eq!(semaphore.ask(&release_once(10, true)), Reply::NotHeld);
    semaphore.ask(&by_name(2, 1));
    assert_eq!(semaphore.ask(&release_once(10, false)), Reply::NotHeld);
    assert_eq!(semaphore.state.holders().len(), 1);
}

#[test]
fn of_a_renewal_by_name_no_copy_counts_after_a_repeated_one() {
    let (mut semaphore, minute) = (Bench::<State>::new(), Duration::from_secs(60));
    semaphore.ask(&by_name(1, 1));
    assert!(matches!(semaphore.ask(&renew_once(10, true, Duration::MAX)), Reply::Renewed { .. }));
    assert!(matches!(semaphore.ask(&renew_once(11, false, minute)), Reply::Renewed { .. }));
    for repeated in [false, true] {
        let late = renew_once(10, repeated, Duration::MAX);
        assert!(matches!(semaphore.ask(&late), Reply::Renewed { .. }), "it is answered as before");
        assert_eq!(semaphore.state.holders()[0].3, semaphore.now + minute);
    }
    semaphore.ask(&release_once(12, false));
    assert_eq!(semaphore.ask(&renew_once(10, true, Duration::MAX)), Reply::Lost);
}

#[test]
fn of_what_is_done_by_name_only_repetitions_are_remembered_and_for_a_minute() {
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
