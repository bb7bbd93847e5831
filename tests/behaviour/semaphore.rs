//! Laws of the semaphore.

use crate::support::{GENEROUS, SOON, after, fresh_name, in_time, queued, span, waiting_at};
use locker::{ErrorKind, Locker};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

pub(crate) async fn never_more_than_its_size_hold(locker: Locker) {
    let (name, inside, most) = (fresh_name(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..24)
        .map(|number| {
            let (locker, name, inside, most) = (locker.clone(), name.clone(), inside.clone(), most.clone());
            let permits = 1 + number % 3;
            tokio::spawn(async move {
                for _ in 0..10 {
                    let request = locker.semaphore(&name, 5).permits(permits).timeout(GENEROUS);
                    let guard = request.acquire().await.unwrap();
                    most.fetch_max(inside.fetch_add(permits, Ordering::SeqCst) + permits, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(permits, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("a task with permits", task).await.unwrap();
    }
    assert!((3..=5).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

pub(crate) async fn permits_are_free_after_release_and_after_drop(locker: Locker) {
    let name = fresh_name();
    let one = locker.semaphore(&name, 2).acquire().await.unwrap();
    let two = locker.semaphore(&name, 2).acquire().await.unwrap();
    assert_eq!(one.key(), format!("semaphore:{name}"));
    assert!(two.fence() > one.fence());
    assert!(locker.semaphore(&name, 2).try_acquire().await.unwrap().is_none());
    one.release().await.unwrap();
    let one = locker.semaphore(&name, 2).try_acquire().await.unwrap().expect("one was released");
    drop((one, two));
    let both = in_time("both permits", locker.semaphore(&name, 2).permits(2).acquire()).await.unwrap();
    assert!(both.is_held());
}

pub(crate) async fn several_permits_are_taken_all_or_nothing(locker: Locker) {
    let name = fresh_name();
    let one = locker.semaphore(&name, 3).acquire().await.unwrap();
    assert!(locker.semaphore(&name, 3).permits(3).try_acquire().await.unwrap().is_none());
    let two = locker.semaphore(&name, 3).permits(2).try_acquire().await.unwrap();
    assert!(two.is_some(), "the failed attempt has taken nothing");
    one.release().await.unwrap();
}

/// Waiters are served in order, however many permits each one wants.
pub(crate) async fn small_requests_do_not_pass_large_ones(locker: Locker) {
    let (name, served) = (fresh_name(), Arc::<Mutex<Vec<u64>>>::default());
    let guard = locker.semaphore(&name, 3).permits(3).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..8_u64 {
        let request = locker.semaphore(&name, 3).permits(if number % 2 == 0 { 3 } else { 1 });
        let acquire = queued(&locker, "semaphore", &name, request.timeout(GENEROUS).acquire()).await;
        let served = served.clone();
        waiters.push(tokio::spawn(async move {
            let guard = acquire.await.unwrap();
            served.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        in_time("a waiter", waiter).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..8).collect::<Vec<_>>());
}

pub(crate) async fn a_hold_that_is_not_renewed_frees_its_permit(locker: Locker) {
    let name = fresh_name();
    let guard = locker.semaphore(&name, 1).lease(span()).renew(false).acquire().await.unwrap();
    let next = locker.semaphore(&name, 1).timeout(GENEROUS).acquire();
    let next = after(span(), "the next", next).await.unwrap();
    in_time("the loss", guard.lost()).await;
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await.unwrap();
}

pub(crate) async fn a_renewed_hold_outlives_its_lease(locker: Locker) {
    let name = fresh_name();
    crate::support::outlives_its_lease(&locker, "semaphore", &name, locker.semaphore(&name, 1)).await;
}

pub(crate) async fn growing_serves_waiters(locker: Locker) {
    let name = fresh_name();
    let guard = locker.semaphore(&name, 1).acquire().await.unwrap();
    let waiting =
        queued(&locker, "semaphore", &name, locker.semaphore(&name, 1).timeout(GENEROUS).acquire()).await;
    let third = locker.semaphore(&name, 3).try_acquire().await.unwrap();
    assert!(third.is_some());
    in_time("the waiter", waiting).await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// A smaller size evicts no holder, and admits no caller until enough holders have left.
pub(crate) async fn shrinking_evicts_no_holder(locker: Locker) {
    let name = fresh_name();
    let one = locker.semaphore(&name, 2).acquire().await.unwrap();
    let two = locker.semaphore(&name, 2).acquire().await.unwrap();
    assert!(locker.semaphore(&name, 1).try_acquire().await.unwrap().is_none());
    assert!(one.check().is_ok() && two.check().is_ok());
    one.release().await.unwrap();
    assert!(locker.semaphore(&name, 1).try_acquire().await.unwrap().is_none());
    two.release().await.unwrap();
    assert!(locker.semaphore(&name, 1).try_acquire().await.unwrap().is_some());
}

pub(crate) async fn size_zero_parks_callers_until_it_is_raised(locker: Locker) {
    let name = fresh_name();
    let parked =
        queued(&locker, "semaphore", &name, locker.semaphore(&name, 0).timeout(GENEROUS).acquire()).await;
    assert!(locker.semaphore(&name, 0).try_acquire().await.unwrap().is_none());
    let second = in_time("a place", locker.semaphore(&name, 2).timeout(GENEROUS).acquire()).await.unwrap();
    let first = in_time("the parked caller", parked).await.unwrap();
    assert!(first.fence() < second.fence(), "the first caller is served first");
    first.release().await.unwrap();
    second.release().await.unwrap();
}

pub(crate) async fn a_dropped_waiter_leaves_no_trace(locker: Locker) {
    let name = fresh_name();
    let guard = locker.semaphore(&name, 2).acquire().await.unwrap();
    let greedy = queued(
        &locker,
        "semaphore",
        &name,
        locker.semaphore(&name, 2).permits(2).timeout(GENEROUS).acquire(),
    )
    .await;
    let modest =
        queued(&locker, "semaphore", &name, locker.semaphore(&name, 2).timeout(GENEROUS).acquire()).await;
    drop(greedy);
    in_time("the waiter behind it", modest).await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// Each of two releases in a row wakes another unfair waiter.
pub(crate) async fn permits_freed_in_a_row_wake_unfair_waiters(locker: Locker) {
    let name = fresh_name();
    let one = locker.semaphore(&name, 2).acquire().await.unwrap();
    let two = locker.semaphore(&name, 2).acquire().await.unwrap();
    let unfair = locker.semaphore(&name, 2).fair(false).timeout(SOON).retry_delay(GENEROUS);
    let first = queued(&locker, "semaphore", &name, unfair.clone().acquire()).await;
    let second = queued(&locker, "semaphore", &name, unfair.acquire()).await;
    one.release().await.unwrap();
    two.release().await.unwrap();
    let (first, second) = tokio::join!(first, second);
    first.unwrap().release().await.unwrap();
    second.unwrap().release().await.unwrap();
}

/// An unfair caller that raises the size and overtakes leaves the other new permits to the waiters.
pub(crate) async fn overtaker_that_grows_the_size_wakes_waiters(locker: Locker) {
    let name = fresh_name();
    let held = locker.semaphore(&name, 1).acquire().await.unwrap();
    let unfair = queued(
        &locker,
        "semaphore",
        &name,
        locker.semaphore(&name, 1).fair(false).timeout(SOON).retry_delay(GENEROUS).acquire(),
    )
    .await;
    let fair = queued(
        &locker,
        "semaphore",
        &name,
        locker.semaphore(&name, 1).timeout(SOON).retry_delay(GENEROUS).acquire(),
    )
    .await;
    let third =
        locker.semaphore(&name, 4).fair(false).timeout(SOON).retry_delay(GENEROUS).acquire().await.unwrap();
    let (unfair, fair) = tokio::join!(unfair, fair);
    for guard in [held, unfair.unwrap(), fair.unwrap(), third] {
        guard.release().await.unwrap();
    }
}

/// A waiter that wants more permits than a lowered size has is refused, and the waiters behind it are served.
pub(crate) async fn request_above_a_lowered_size_is_refused(locker: Locker) {
    let name = fresh_name();
    let held = locker.semaphore(&name, 3).acquire().await.unwrap();
    let greedy =
        queued(&locker, "semaphore", &name, locker.semaphore(&name, 3).permits(3).timeout(SOON).acquire())
            .await;
    let modest =
        queued(&locker, "semaphore", &name, locker.semaphore(&name, 3).timeout(SOON).acquire()).await;
    let parked =
        queued(&locker, "semaphore", &name, locker.semaphore(&name, 0).timeout(SOON).acquire()).await;
    waiting_at(&locker, "semaphore", &name, 3).await;
    let fourth = locker.semaphore(&name, 2).try_acquire().await.unwrap();
    assert!(fourth.is_none(), "the permit goes to the waiter");
    let modest = in_time("the modest one", modest).await.unwrap();
    let error = in_time("the refusal", greedy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused);
    assert!(error.to_string().contains("permits 3 can never be had at once any more"), "{error}");
    held.release().await.unwrap();
    in_time("the parked caller", parked).await.unwrap().release().await.unwrap();
    modest.release().await.unwrap();
}

pub(crate) async fn impossible_requests_are_refused_at_once(locker: Locker) {
    let name = fresh_name();
    for (size, permits, says) in
        [(2, 3, "permits 3 can never be had at once: there are 2"), (2, 0, "permits 0")]
    {
        let error = locker.semaphore(&name, size).permits(permits).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused);
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = locker.lock(&name).permits(2).acquire().await.unwrap_err();
    assert!(error.to_string().contains("permits belong to semaphores"), "{error}");
    let huge = locker.semaphore(&name, u64::MAX).acquire().await.unwrap();
    huge.release().await.unwrap();
}

pub(crate) async fn blocking_calls_work(locker: Locker) {
    let name = fresh_name();
    let guard = locker.semaphore(&name, 1).acquire_blocking().unwrap();
    assert!(locker.semaphore(&name, 1).try_acquire_blocking().unwrap().is_none());
    guard.release_blocking().unwrap();
}

/// A waiter that is woken and not polled does not keep the next one waiting.
pub(crate) async fn silent_waiter_is_passed_over(locker: Locker) {
    let name = fresh_name();
    let ask = || locker.semaphore(&name, 1).timeout(GENEROUS);
    crate::lock::the_silent_are_passed_over(&locker, "semaphore", &name, ask).await;
}
