//! Laws of the barrier, the latch, the counter, and of several locks at once.

use crate::support::{GENEROUS, SHORT, SOON, after, fresh_name, in_time, queued, span, waiting_at};
use locker::{ErrorKind, Locker};
use std::time::Duration;

/// Round after round.
pub(crate) async fn barrier_opens_when_all_parties_arrive(locker: Locker) {
    let name = fresh_name();
    let barrier = locker.barrier(&name, 3);
    for _ in 0..3 {
        let one = queued(&locker, "barrier", &name, barrier.wait(GENEROUS)).await;
        let two = queued(&locker, "barrier", &name, barrier.wait(GENEROUS)).await;
        assert_eq!(barrier.wait(Duration::ZERO).await.map_err(|error| error.kind()), Ok(()));
        in_time("the first", one).await.unwrap();
        in_time("the second", two).await.unwrap();
    }
}

/// A barrier for one round refuses later callers until it is deleted. One for many rounds does not care.
pub(crate) async fn a_barrier_may_open_only_once(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let once = locker.barrier(&name, 2).once(true);
    let first = queued(&locker, "barrier", &name, once.wait(GENEROUS)).await;
    in_time("the last arrival", once.wait(GENEROUS)).await.unwrap();
    in_time("the first arrival", first).await.unwrap();
    for timeout in [Duration::ZERO, GENEROUS] {
        assert_eq!(once.wait(timeout).await.unwrap_err().kind(), ErrorKind::Conflict);
    }
    let state = admin.inspect(&admin.key("barrier", &name)).await.unwrap().unwrap();
    assert_eq!((state.fired, state.waiting), (Some(true), 0));
    let again = locker.barrier(&name, 2);
    let first = queued(&locker, "barrier", &name, again.wait(GENEROUS)).await;
    in_time("the next round", again.wait(GENEROUS)).await.unwrap();
    in_time("its first arrival", first).await.unwrap();
    assert_eq!(once.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(admin.delete(&admin.key("barrier", &name)).await.unwrap());
    assert_eq!(once.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
}

pub(crate) async fn departed_barrier_waiter_does_not_count(locker: Locker) {
    let name = fresh_name();
    let barrier = locker.barrier(&name, 3);
    let gone = queued(&locker, "barrier", &name, barrier.wait(GENEROUS)).await;
    let one = queued(&locker, "barrier", &name, barrier.wait(GENEROUS)).await;
    drop(gone);
    waiting_at(&locker, "barrier", &name, 1).await;
    let late = in_time("the time-out", barrier.wait(SHORT)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    waiting_at(&locker, "barrier", &name, 1).await;
    let two = queued(&locker, "barrier", &name, barrier.wait(GENEROUS)).await;
    barrier.wait(GENEROUS).await.unwrap();
    in_time("the first", one).await.unwrap();
    in_time("the second", two).await.unwrap();
    let error = locker.barrier(&fresh_name(), 0).wait_blocking(SHORT).unwrap_err();
    assert!(error.to_string().contains("parties 0"), "{error}");
}

/// The waiters that pass make up whole rounds, however many time out at the same moment.
pub(crate) async fn timed_out_barrier_waiter_does_not_count(locker: Locker) {
    let name = fresh_name();
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (barrier, patience) = (locker.barrier(&name, 3), Duration::from_millis(1 + number % 5));
            tokio::spawn(async move {
                let mut passed = 0;
                for _ in 0..100 {
                    match barrier.wait(patience).await {
                        Ok(()) => passed += 1,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
                    }
                }
                passed
            })
        })
        .collect();
    let mut passed = 0;
    for task in tasks {
        passed += in_time("all tries", task).await.unwrap();
    }
    assert!(passed > 0 && passed % 3 == 0, "{passed}");
}

pub(crate) async fn counted_down_latch_stays_open(locker: Locker) {
    let name = fresh_name();
    let latch = locker.latch(&name, 2);
    let waiting = queued(&locker, "latch", &name, latch.wait(GENEROUS)).await;
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert_eq!(latch.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    in_time("the waiter", waiting).await.unwrap();
    latch.wait_blocking(Duration::ZERO).unwrap();
    assert_eq!(latch.count_down_blocking().unwrap(), 0);
}

/// A latch that has opened releases a waiter that asked for a larger count.
pub(crate) async fn opened_latch_releases_larger_waits(locker: Locker) {
    let name = fresh_name();
    let (many, one) = (locker.latch(&name, 5), locker.latch(&name, 1));
    let waiting = queued(&locker, "latch", &name, many.wait(GENEROUS)).await;
    assert_eq!(one.count_down().await.unwrap(), 0);
    in_time("the waiter", waiting).await.unwrap();
    one.wait(Duration::ZERO).await.unwrap();
}

/// The name is deleted after the waiter was notified and before it has rechecked.
pub(crate) async fn released_waiter_survives_deletion(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let delete = async |kind| assert!(admin.delete(&admin.key(kind, &name)).await.unwrap(), "{kind}");
    let (barrier, latch) = (locker.barrier(&name, 2), locker.latch(&name, 1));
    let first = queued(&locker, "barrier", &name, barrier.wait(SOON)).await;
    barrier.wait(GENEROUS).await.unwrap();
    delete("barrier").await;
    first.await.unwrap();
    assert_eq!(barrier.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    let waiting = queued(&locker, "latch", &name, latch.wait(SOON)).await;
    assert_eq!(latch.count_down().await.unwrap(), 0);
    delete("latch").await;
    waiting.await.unwrap();
    assert_eq!(latch.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
}

/// A waiter that was released and then dropped does not keep a deleted name in use.
pub(crate) async fn dropped_waiter_leaves_no_deleted_name(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let (barrier, latch) = (locker.barrier(&name, 2), locker.latch(&name, 1));
    let first = queued(&locker, "barrier", &name, barrier.wait(SOON)).await;
    barrier.wait(GENEROUS).await.unwrap();
    let waiting = queued(&locker, "latch", &name, latch.wait(SOON)).await;
    latch.count_down().await.unwrap();
    drop((first, waiting));
    locker.settled().await;
    for key in ["barrier", "latch"].map(|kind| admin.key(kind, &name)) {
        admin.delete(&key).await.unwrap();
        assert_eq!(admin.inspect(&key).await.unwrap(), None, "{key:?}");
        assert!(!admin.delete(&key).await.unwrap(), "{key:?}");
    }
}

pub(crate) async fn a_counter_loses_no_change(locker: Locker) {
    let name = fresh_name();
    let tasks: Vec<_> = (1..=10_i64)
        .map(|by| {
            let counter = locker.counter(&name);
            tokio::spawn(async move {
                for _ in 0..20 {
                    counter.add(by).await.unwrap();
                    counter.add(-1).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("a task that counts", task).await.unwrap();
    }
    let counter = locker.counter(&name);
    assert_eq!(counter.get().await.unwrap(), 20 * 55 - 200);
    counter.set(-7).await.unwrap();
    assert_eq!(counter.add_blocking(2).unwrap(), -5);
    assert_eq!(counter.get_blocking().unwrap(), -5);
    counter.set_blocking((1 << 53) - 1).unwrap();
    assert_eq!(counter.add(1).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(counter.set(1 << 53).await.unwrap_err().to_string().contains("out of range"));
}

pub(crate) async fn counter_refuses_additions_out_of_range(locker: Locker) {
    let name = fresh_name();
    let counter = locker.counter(&name);
    counter.set(-5).await.unwrap();
    for by in [(1 << 53) + 3, -(1 << 53), i64::MAX, i64::MIN] {
        let error = counter.add(by).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused);
        assert!(
            error.to_string().contains("by") && error.to_string().contains("9007199254740991"),
            "{error}"
        );
    }
    assert_eq!(counter.get().await.unwrap(), -5);
}

/// Floating-point numbers are exact below 2^53.
pub(crate) async fn parties_and_counts_from_2_53_are_refused(locker: Locker) {
    let name = fresh_name();
    for number in [1 << 53, u64::MAX] {
        let parties = locker.barrier(&name, number).wait(Duration::ZERO).await.unwrap_err();
        let waits = locker.latch(&name, number).wait(Duration::ZERO).await.unwrap_err();
        let counts = locker.latch(&name, number).count_down().await.unwrap_err();
        for (error, what) in [(parties, "parties"), (waits, "count"), (counts, "count")] {
            assert_eq!(error.kind(), ErrorKind::Misused);
            assert!(error.to_string().contains(&format!("{what} {number} is out of range")), "{error}");
        }
    }
    assert_eq!(locker.latch(&name, (1 << 53) - 1).count_down().await.unwrap(), (1 << 53) - 2);
}

pub(crate) async fn several_locks_are_taken_all_or_nothing(locker: Locker) {
    let [one, two, three] = [fresh_name(), fresh_name(), fresh_name()];
    let held = locker.lock(&two).acquire().await.unwrap();
    assert!(locker.lock_all([&one, &two, &three]).try_acquire().await.unwrap().is_none());
    for name in [&one, &three] {
        assert!(locker.lock(name).try_acquire().await.unwrap().is_some(), "nothing stays held");
    }
    held.release().await.unwrap();
    let guards = locker.lock_all([&three, &one, &two, &one]).acquire().await.unwrap();
    assert_eq!(guards.each().len(), 3, "a lock named twice is taken once");
    assert!(guards.is_held() && guards.check().is_ok() && guards.remaining() > Duration::from_secs(5));
    assert!(locker.lock(&one).try_acquire().await.unwrap().is_none(), "they are the plain locks");
    guards.release().await.unwrap();
    assert!(locker.lock(&one).try_acquire().await.unwrap().is_some());
    let none = locker.lock_all(Vec::<String>::new()).acquire_blocking().unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Misused);
}

pub(crate) async fn several_locks_in_any_order_never_deadlock(locker: Locker) {
    let names: Vec<String> = (0..4).map(|_| fresh_name()).collect();
    let tasks: Vec<_> = (0..8_usize)
        .map(|number| {
            let (locker, mut names) = (locker.clone(), names.clone());
            names.rotate_left(number % 4);
            if number % 2 == 0 {
                names.reverse();
            }
            tokio::spawn(async move {
                for _ in 0..20 {
                    let request = locker.lock_all(&names[..3]).timeout(GENEROUS);
                    request.acquire().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("a task with several locks", task).await.unwrap();
    }
}

pub(crate) async fn loss_of_one_of_several_locks_is_reported(locker: Locker) {
    let [one, two] = [fresh_name(), fresh_name()];
    let guards = locker.lock_all([&one, &two]).lease(GENEROUS).acquire().await.unwrap();
    assert!(locker.admin().delete(&locker.admin().key("lock", &two)).await.unwrap());
    assert_eq!(guards.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let short = locker.lock_all([&one, &two]).lease(span()).renew(false).acquire().await.unwrap();
    after(span(), "the loss", short.lost()).await;
    assert_eq!(short.check().unwrap_err().kind(), ErrorKind::Lost);
}

/// Also if no time was left for the second lock.
pub(crate) async fn several_locks_report_their_whole_timeout(locker: Locker) {
    let mut names = [fresh_name(), fresh_name()];
    names.sort();
    let held = locker.lock(&names[1]).acquire().await.unwrap();
    let error = locker.lock_all(&names).timeout(Duration::from_nanos(1)).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::TimedOut, Some(held.key())));
    assert_eq!(error.message(), "not acquired within 1ns");
    held.release().await.unwrap();
}
