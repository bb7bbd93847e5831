//! Laws of the exclusive lock.

use crate::support::{
    GENEROUS, SHORT, SOON, after, fresh_name, in_time, outlives_its_lease, pass, queued, span, until,
};
use locker::{ErrorKind, LockRequest, Locker};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Builder;

pub(crate) async fn two_never_hold_at_once(locker: Locker) {
    let (name, inside, most) = (fresh_name(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let (locker, name, inside, most) = (locker.clone(), name.clone(), inside.clone(), most.clone());
            tokio::spawn(async move {
                for _ in 0..20 {
                    let guard = locker.lock(&name).timeout(GENEROUS).acquire().await.unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("a task with the lock", task).await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

pub(crate) async fn is_free_after_release(locker: Locker) {
    let name = fresh_name();
    let guard = locker.lock(&name).acquire().await.unwrap();
    assert!(guard.is_held() && guard.check().is_ok());
    assert!(guard.remaining() <= Duration::from_secs(10) && guard.remaining() > Duration::from_secs(5));
    assert_eq!((guard.key(), guard.id().len()), (format!("lock:{name}").as_str(), 32));
    assert!(locker.lock(&name).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(locker.lock(&name).try_acquire().await.unwrap().is_some());
}

pub(crate) async fn is_free_after_drop(locker: Locker) {
    let name = fresh_name();
    drop(locker.lock(&name).acquire().await.unwrap());
    in_time("the next holder", locker.lock(&name).acquire()).await.unwrap().release().await.unwrap();
}

pub(crate) async fn fences_rise(locker: Locker) {
    let (name, mut last) = (fresh_name(), 0);
    for _ in 0..200 {
        let guard = locker.lock(&name).acquire().await.unwrap();
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        last = guard.fence();
        guard.release().await.unwrap();
    }
}

/// Starts a waiter and returns when it is in the queue behind `before` others.
async fn queue_up(
    locker: &Locker,
    name: &str,
    before: usize,
    served: &Arc<Mutex<Vec<usize>>>,
) -> tokio::task::JoinHandle<()> {
    let (request, served) = (locker.lock(name).timeout(GENEROUS), served.clone());
    let acquire = queued(locker, "lock", name, request.acquire()).await;
    tokio::spawn(async move {
        let guard = acquire.await.unwrap();
        served.lock().unwrap().push(before);
        guard.release().await.unwrap();
    })
}

pub(crate) async fn waiters_are_served_in_order(locker: Locker) {
    let (name, served) = (fresh_name(), Arc::default());
    let guard = locker.lock(&name).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..20 {
        waiters.push(queue_up(&locker, &name, number, &served).await);
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        in_time("a waiter", waiter).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

pub(crate) async fn a_dropped_waiter_leaves_no_trace(locker: Locker) {
    let (name, served) = (fresh_name(), Arc::default());
    let guard = locker.lock(&name).acquire().await.unwrap();
    let gone = queue_up(&locker, &name, 0, &served).await;
    let next = queue_up(&locker, &name, 1, &served).await;
    gone.abort();
    assert!(in_time("the end of the dropped waiter", gone).await.unwrap_err().is_cancelled());
    guard.release().await.unwrap();
    in_time("the waiter behind the dropped one", next).await.unwrap();
    assert_eq!(*served.lock().unwrap(), [1]);
    assert!(in_time("a later caller", locker.lock(&name).acquire()).await.unwrap().is_held());
}

pub(crate) async fn a_wait_beyond_the_timeout_ends_in_timed_out(locker: Locker) {
    let name = fresh_name();
    let guard = locker.lock(&name).acquire().await.unwrap();
    let error = locker.lock(&name).timeout(SHORT).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.key(), Some(guard.key()));
    guard.release().await.unwrap();
    assert!(
        locker.lock(&name).try_acquire().await.unwrap().is_some(),
        "the caller that gave up left the queue"
    );
}

pub(crate) async fn a_timeout_of_zero_tries_once(locker: Locker) {
    let name = fresh_name();
    let _guard = locker.lock(&name).acquire().await.unwrap();
    let error = locker.lock(&name).timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // A lease of ten seconds, and what a store adds because it does not know its clock exactly.
    assert!(error.retry_after().is_some_and(|after| after <= Duration::from_secs(11)), "{error:?}");
}

pub(crate) async fn attempts_are_counted(locker: Locker) {
    let name = fresh_name();
    let guard = locker.lock(&name).acquire().await.unwrap();
    for attempts in [1, 3] {
        let started = Instant::now();
        let request = locker.lock(&name).max_retry(attempts).retry_delay(SHORT).timeout(GENEROUS);
        let error = in_time("the last attempt", request.acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RetriesExhausted);
        assert!(started.elapsed() >= SHORT * (attempts - 1), "no attempt comes before its time");
    }
    guard.release().await.unwrap();
    assert!(locker.lock(&name).try_acquire().await.unwrap().is_some());
}

pub(crate) async fn a_last_try_takes_what_is_free(locker: Locker) {
    for fair in [true, false] {
        let name = fresh_name();
        let _over = locker.lock(&name).lease(SHORT).renew(false).acquire().await.unwrap();
        let request = locker.lock(&name).fair(fair).max_retry(2).retry_delay(SOON).timeout(GENEROUS);
        in_time("the last try", request.acquire()).await.unwrap().release().await.unwrap();
    }
}

pub(crate) async fn a_lease_that_is_not_renewed_hands_over(locker: Locker) {
    let name = fresh_name();
    let guard = locker.lock(&name).lease(span()).renew(false).acquire().await.unwrap();
    let next = locker.lock(&name).timeout(GENEROUS).acquire();
    let next = after(span(), "the hand-over", next).await.unwrap();
    in_time("the loss", guard.lost()).await;
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.fence() > guard.fence());
    drop(guard);
    assert!(next.check().is_ok(), "the end of a lost guard does not end the next hold");
    next.release().await.unwrap();
}

pub(crate) async fn a_renewed_lease_outlives_its_length(locker: Locker) {
    let name = fresh_name();
    outlives_its_lease(&locker, "lock", &name, locker.lock(&name)).await;
}

pub(crate) async fn max_hold_ends_a_hold(locker: Locker) {
    let name = fresh_name();
    let guard = locker.lock(&name).lease(span()).max_hold(span() * 2).acquire().await.unwrap();
    after(span() * 2, "the loss", guard.lost()).await;
    let next = in_time("the next holder", locker.lock(&name).timeout(GENEROUS).acquire()).await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await.unwrap();
}

/// `Guard::remaining` never reports more time than `max_hold` leaves.
pub(crate) async fn remaining_never_exceeds_max_hold(locker: Locker) {
    let (lease, max_hold, mut passed) = (span() * 6, span() * 7, Duration::ZERO);
    let guard = locker.lock(&fresh_name()).lease(lease).max_hold(max_hold).acquire().await.unwrap();
    let ends = Instant::now() + max_hold;
    until("the loss", async || {
        let most = ends.saturating_duration_since(Instant::now() + passed);
        let left = guard.remaining();
        assert!(left <= most, "{left:?} are said to be left of {most:?}");
        passed += pass(span() / 2);
        left.is_zero()
    })
    .await;
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

pub(crate) async fn release_after_loss_returns_lost(locker: Locker) {
    let name = fresh_name();
    let guard = locker.lock(&name).lease(span()).renew(false).acquire().await.unwrap();
    pass(span());
    until("the lease is over", async || !guard.is_held()).await;
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Lost, false));
}

pub(crate) async fn unfair_callers_all_get_through(locker: Locker) {
    let (name, done) = (fresh_name(), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let (locker, name, done) = (locker.clone(), name.clone(), done.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let request = locker.lock(&name).fair(number % 4 == 0).timeout(GENEROUS);
                    request.acquire().await.unwrap().release().await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("a caller", task).await.unwrap();
    }
    assert_eq!(done.load(Ordering::SeqCst), 160);
}

pub(crate) async fn blocking_calls_work_everywhere(locker: Locker) {
    let name = fresh_name();
    let guard = locker.lock(&name).acquire_blocking().unwrap();
    let (other, other_name) = (locker.clone(), name.clone());
    let waiting = std::thread::spawn(move || {
        other.lock(&other_name).timeout(GENEROUS).acquire_blocking().unwrap().release_blocking().unwrap();
    });
    assert!(locker.lock(&name).try_acquire_blocking().unwrap().is_none());
    guard.release_blocking().unwrap();
    until("the thread has released the lock", async || waiting.is_finished()).await;
    waiting.join().unwrap();
}

/// A waiter that is woken and not polled does not keep the next one waiting.
pub(crate) async fn silent_waiter_is_passed_over(locker: Locker) {
    let name = fresh_name();
    the_silent_are_passed_over(&locker, "lock", &name, || locker.lock(&name).timeout(GENEROUS)).await;
}

/// As in `select!`, when a future is granted while another branch is at work.
pub(crate) async fn the_silent_are_passed_over(
    locker: &Locker,
    kind: &str,
    name: &str,
    ask: impl Fn() -> LockRequest,
) {
    let held = ask().acquire().await.unwrap();
    let silent = queued(locker, kind, name, ask().fair(false).acquire()).await;
    let next = queued(locker, kind, name, ask().acquire()).await;
    held.release().await.unwrap();
    in_time("the next", next).await.unwrap().release().await.unwrap();
    in_time("the silent waiter", silent).await.unwrap().release().await.unwrap();
}

/// More calls than tokio lets a task make before it yields, which a blocking call cannot do.
pub(crate) async fn one_task_may_make_many_blocking_calls(locker: Locker) {
    for runtime in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let (locker, done) = (locker.clone(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&done);
        std::thread::spawn(move || many_blocking_calls(runtime, &locker, &count));
        until("all calls have ended", async || done.load(Ordering::SeqCst) == 300).await;
    }
}

fn many_blocking_calls(mut runtime: Builder, locker: &Locker, done: &Arc<AtomicUsize>) {
    let (locker, done, name) = (locker.clone(), Arc::clone(done), fresh_name());
    let task = async move {
        let held = locker.lock(&name).lease(GENEROUS).acquire_blocking().unwrap();
        for _ in 0..300 {
            let waiting = locker.lock(&name).timeout(Duration::from_millis(1)).acquire_blocking();
            assert!(waiting.unwrap_err().is_temporary());
            done.fetch_add(1, Ordering::SeqCst);
        }
        held.release_blocking().unwrap();
    };
    let runtime = runtime.worker_threads(1).build().unwrap();
    runtime.block_on(async { tokio::spawn(task).await }).unwrap();
}
