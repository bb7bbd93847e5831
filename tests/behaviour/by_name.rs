//! Laws of holds by name, and of inspecting, evicting, deleting and listing names. A server is built on them.

use crate::support::{
    GENEROUS, MINUTE, MINUTE_LEFT, SHORT, SOON, after, fresh_name, in_time, pass, queued, span, until,
    waiting_at,
};
use locker::{ErrorKind, Locker, Quota};
use std::time::Duration;

/// A holder that acquires again under its own name keeps its hold, its fence and its expiry.
pub(crate) async fn repeated_acquire_keeps_hold_and_expiry(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let first = locker.keyed_semaphore(&name, 2).acquire("me", MINUTE, Duration::ZERO).await.unwrap();
    let again = locker.keyed_semaphore(&name, 2).acquire("me", MINUTE * 10, Duration::ZERO).await.unwrap();
    assert_eq!(first.fence, again.fence);
    let state = admin.inspect(&admin.key("semaphore", &name)).await.unwrap().unwrap();
    assert_eq!((state.size, state.used, state.waiting, state.holders.len()), (Some(2), Some(1), 0, 1));
    let holder = &state.holders[0];
    assert!(holder.time_left.is_some_and(|left| left <= MINUTE_LEFT && left > MINUTE / 2), "{holder:?}");
    assert!(holder.fence == first.fence && holder.age.is_some_and(|age| age < MINUTE / 2), "{holder:?}");
    assert!(locker.keyed_semaphore(&name, 1).release("me").await.unwrap());
    assert!(!locker.keyed_semaphore(&name, 1).release("me").await.unwrap());
}

/// A wait that times out or is dropped does not end the other waits of the same holder.
pub(crate) async fn waits_of_one_holder_are_independent(locker: Locker) {
    let name = fresh_name();
    locker.keyed_semaphore(&name, 1).acquire("other", MINUTE, Duration::ZERO).await.unwrap();
    let impatient = locker.keyed_semaphore(&name, 1).acquire("me", MINUTE, SHORT);
    let patient =
        queued(&locker, "semaphore", &name, locker.keyed_semaphore(&name, 1).acquire("me", MINUTE, GENEROUS))
            .await;
    assert_eq!(in_time("the time-out", impatient).await.unwrap_err().kind(), ErrorKind::TimedOut);
    let dropped =
        queued(&locker, "semaphore", &name, locker.keyed_semaphore(&name, 1).acquire("me", MINUTE, GENEROUS))
            .await;
    let third =
        queued(&locker, "semaphore", &name, locker.keyed_semaphore(&name, 1).acquire("me", MINUTE, GENEROUS))
            .await;
    drop(dropped);
    assert!(locker.keyed_semaphore(&name, 1).release("other").await.unwrap());
    let fence = in_time("the patient wait", patient).await.unwrap().fence;
    assert_eq!(in_time("the other wait", third).await.unwrap().fence, fence);
    assert!(locker.keyed_semaphore(&name, 1).renew("me", MINUTE).await.unwrap());
    assert!(locker.keyed_semaphore(&name, 1).release("me").await.unwrap());
}

/// A wait for a hold without expiry times out or is dropped: it never holds later.
pub(crate) async fn ended_wait_without_expiry_leaves_nothing(locker: Locker) {
    let name = fresh_name();
    locker.keyed_semaphore(&name, 1).acquire("holder", Duration::MAX, Duration::ZERO).await.unwrap();
    let late =
        in_time("the time-out", locker.keyed_semaphore(&name, 1).acquire("late", Duration::MAX, SHORT * 3))
            .await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    waiting_at(&locker, "semaphore", &name, 0).await;
    drop(
        queued(
            &locker,
            "semaphore",
            &name,
            locker.keyed_semaphore(&name, 1).acquire("dropped", Duration::MAX, GENEROUS),
        )
        .await,
    );
    waiting_at(&locker, "semaphore", &name, 0).await;
    let next = queued(
        &locker,
        "semaphore",
        &name,
        locker.keyed_semaphore(&name, 1).acquire("next", Duration::MAX, GENEROUS),
    )
    .await;
    assert!(locker.keyed_semaphore(&name, 1).release("holder").await.unwrap());
    in_time("the next", next).await.unwrap();
    for gone in ["late", "dropped"] {
        assert!(!locker.keyed_semaphore(&name, 1).release(gone).await.unwrap(), "{gone} holds nothing");
    }
    assert!(locker.keyed_semaphore(&name, 1).release("next").await.unwrap());
}

/// One grant serves two waits of the same holder. Dropping the first one keeps the hold that the second one returned.
pub(crate) async fn reported_hold_outlives_a_dropped_wait(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    locker.keyed_semaphore(&name, 1).acquire("other", MINUTE, Duration::ZERO).await.unwrap();
    let first =
        queued(&locker, "semaphore", &name, locker.keyed_semaphore(&name, 1).acquire("me", MINUTE, GENEROUS))
            .await;
    let second =
        queued(&locker, "semaphore", &name, locker.keyed_semaphore(&name, 1).acquire("me", MINUTE, GENEROUS))
            .await;
    assert!(locker.keyed_semaphore(&name, 1).release("other").await.unwrap());
    let fence = in_time("the second wait", second).await.unwrap().fence;
    drop(first);
    // The cancel of the dropped wait is sent before this.
    let probe = queued(
        &locker,
        "semaphore",
        &name,
        locker.keyed_semaphore(&name, 1).acquire("third", MINUTE, GENEROUS),
    )
    .await;
    let again = locker.keyed_semaphore(&name, 1).acquire("me", MINUTE, Duration::ZERO).await.unwrap();
    assert_eq!(again.fence, fence);
    let state = admin.inspect(&admin.key("semaphore", &name)).await.unwrap().unwrap();
    let left = state.holders[0].time_left.unwrap();
    assert!(left > MINUTE / 2, "the second wait has confirmed it: {left:?}");
    drop(probe);
    assert!(locker.keyed_semaphore(&name, 1).release("me").await.unwrap());
}

/// A waiter that is served later does not restore the size that it asked with.
pub(crate) async fn granted_waiter_keeps_the_current_size(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let size = async || admin.inspect(&admin.key("semaphore", &name)).await.unwrap().unwrap().size;
    for holder in ["one", "two"] {
        locker.keyed_semaphore(&name, 2).acquire(holder, MINUTE, Duration::ZERO).await.unwrap();
    }
    let third = queued(
        &locker,
        "semaphore",
        &name,
        locker.keyed_semaphore(&name, 2).acquire("three", MINUTE, GENEROUS),
    )
    .await;
    locker.keyed_semaphore(&name, 1).acquire("four", MINUTE, Duration::ZERO).await.unwrap_err();
    for holder in ["one", "two"] {
        assert!(locker.keyed_semaphore(&name, 1).release(holder).await.unwrap());
    }
    in_time("the third", third).await.unwrap();
    assert_eq!(size().await, Some(1), "it was lowered");

    locker.keyed_semaphore(&name, 0).acquire("four", MINUTE, Duration::ZERO).await.unwrap_err();
    assert!(locker.keyed_semaphore(&name, 1).release("three").await.unwrap());
    let parked = queued(
        &locker,
        "semaphore",
        &name,
        locker.keyed_semaphore(&name, 0).acquire("five", MINUTE, GENEROUS),
    )
    .await;
    let raising = locker.keyed_semaphore(&name, 2).acquire("six", MINUTE, GENEROUS);
    let (parked, raising) = in_time("both", async { tokio::join!(parked, raising) }).await;
    assert!(parked.is_ok() && raising.is_ok(), "{parked:?} {raising:?}");
    assert_eq!(size().await, Some(2), "it was raised");
}

/// The same for two waits of one holder, in either order.
pub(crate) async fn waits_of_one_holder_keep_the_current_size(locker: Locker) {
    let admin = locker.admin();
    for first_comes_first in [true, false] {
        let name = fresh_name();
        locker.keyed_semaphore(&name, 2).acquire("one", MINUTE, Duration::ZERO).await.unwrap();
        locker.keyed_semaphore(&name, 2).acquire("two", MINUTE, Duration::ZERO).await.unwrap();
        let first = queued(
            &locker,
            "semaphore",
            &name,
            locker.keyed_semaphore(&name, 2).acquire("me", MINUTE, GENEROUS),
        )
        .await;
        let second = queued(
            &locker,
            "semaphore",
            &name,
            locker.keyed_semaphore(&name, 2).acquire("me", MINUTE, GENEROUS),
        )
        .await;
        locker.keyed_semaphore(&name, 1).acquire("three", MINUTE, Duration::ZERO).await.unwrap_err();
        for holder in ["one", "two"] {
            assert!(locker.keyed_semaphore(&name, 1).release(holder).await.unwrap());
        }
        let waits = if first_comes_first { [first, second] } else { [second, first] };
        for wait in waits {
            in_time("both waits", wait).await.unwrap();
        }
        let state = admin.inspect(&admin.key("semaphore", &name)).await.unwrap().unwrap();
        assert_eq!((state.size, state.used), (Some(1), Some(1)), "it was lowered");
        assert!(locker.keyed_semaphore(&name, 1).release("me").await.unwrap());
    }
}

pub(crate) async fn a_hold_without_expiry_lasts(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    locker.keyed_semaphore(&name, 1).acquire("me", Duration::MAX, Duration::ZERO).await.unwrap();
    let state = admin.inspect(&admin.key("semaphore", &name)).await.unwrap().unwrap();
    assert_eq!(state.holders[0].time_left, None);
    assert!(!locker.keyed_semaphore(&name, 1).renew("you", MINUTE).await.unwrap());
    assert!(locker.keyed_semaphore(&name, 1).release("me").await.unwrap());
}

pub(crate) async fn hold_with_expiry_ends_automatically(locker: Locker) {
    let name = fresh_name();
    locker.keyed_semaphore(&name, 1).acquire("me", span(), Duration::ZERO).await.unwrap();
    let next = locker.keyed_semaphore(&name, 1).acquire("you", MINUTE, GENEROUS);
    after(span(), "the next holder", next).await.unwrap();
    assert!(!locker.keyed_semaphore(&name, 1).release("me").await.unwrap());
    assert!(locker.keyed_semaphore(&name, 1).release("you").await.unwrap());
}

/// Every waiter at a deleted name gets `Conflict`.
pub(crate) async fn deleting_a_name_fails_its_waiters(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    locker.keyed_semaphore(&name, 1).acquire("me", MINUTE, Duration::ZERO).await.unwrap();
    let parked = Quota::token_bucket(0, MINUTE);
    let event = locker.event(&name);
    let watchdog = locker.watchdog(&name);
    let barrier = locker.barrier(&name, 2);
    let latch = locker.latch(&name, 2);
    let limiter = locker.rate_limiter(&name, parked).timeout(GENEROUS);
    let lock = locker.lock(&name).acquire().await.unwrap();
    macro_rules! check {
        ($($kind:literal: $wait:expr;)+) => {$(
            let waiting = queued(&locker, $kind, &name, $wait).await;
            assert!(admin.delete(&admin.key($kind, &name)).await.unwrap(), $kind);
            let error = in_time("the conflict", waiting).await.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{}: {error}", $kind);
            assert!(admin.inspect(&admin.key($kind, &name)).await.unwrap().is_none(), $kind);
            assert!(!admin.delete(&admin.key($kind, &name)).await.unwrap(), $kind);
        )+};
    }
    check! {
        "semaphore": locker.keyed_semaphore(&name, 1).acquire("you", MINUTE, GENEROUS);
        "rate": limiter.acquire();
        "event": event.wait(GENEROUS);
        "watchdog": watchdog.wait(GENEROUS);
        "barrier": barrier.wait(GENEROUS);
        "latch": latch.wait(GENEROUS);
        "lock": locker.lock(&name).timeout(GENEROUS).acquire();
    }
    assert_eq!(lock.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!locker.keyed_semaphore(&name, 1).release("me").await.unwrap(), "its hold went with the name");
}

/// An evicted holder learns of its loss, and its late release does not end the next hold.
pub(crate) async fn evicting_a_lock_serves_the_next_waiter(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let key = admin.key("lock", &name);
    let evicted = locker.lock(&name).lease(SOON).acquire().await.unwrap();
    let silent = locker.lock(&name).lease(MINUTE).timeout(GENEROUS);
    let next = queued(&locker, "lock", &name, silent.clone().acquire()).await;
    let last = queued(&locker, "lock", &name, silent.acquire()).await;
    assert!(admin.evict(&key).await.unwrap());
    let next = in_time("the next waiter", next).await.unwrap();
    assert!(next.fence() > evicted.fence());
    in_time("the loss", evicted.lost()).await;
    assert_eq!(evicted.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_held(), "a late release is not the next one's");
    assert!(admin.evict(&key).await.unwrap());
    let last = in_time("the last waiter", last).await.unwrap();
    assert!(last.fence() > next.fence());
    assert_eq!(next.release().await.unwrap_err().kind(), ErrorKind::Lost);
    last.release().await.unwrap();
}

/// Eviction frees all permits. The waiters that fit get them, in order.
pub(crate) async fn evicting_a_semaphore_serves_its_waiters(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let key = admin.key("semaphore", &name);
    for holder in ["a", "b"] {
        locker.keyed_semaphore(&name, 2).acquire(holder, Duration::MAX, Duration::ZERO).await.unwrap();
    }
    let first =
        queued(&locker, "semaphore", &name, locker.keyed_semaphore(&name, 2).acquire("c", MINUTE, GENEROUS))
            .await;
    let second =
        queued(&locker, "semaphore", &name, locker.keyed_semaphore(&name, 2).acquire("d", MINUTE, GENEROUS))
            .await;
    let third =
        queued(&locker, "semaphore", &name, locker.keyed_semaphore(&name, 2).acquire("e", MINUTE, GENEROUS))
            .await;
    assert!(admin.evict(&key).await.unwrap());
    let fences = [
        in_time("the first waiter", first).await.unwrap().fence,
        in_time("the second waiter", second).await.unwrap().fence,
    ];
    assert!(fences[0] < fences[1]);
    for evicted in ["a", "b"] {
        assert!(!locker.keyed_semaphore(&name, 1).renew(evicted, MINUTE).await.unwrap(), "{evicted}");
        assert!(!locker.keyed_semaphore(&name, 1).release(evicted).await.unwrap(), "{evicted}");
    }
    let state = admin.inspect(&key).await.unwrap().unwrap();
    assert_eq!((state.used, state.waiting), (Some(2), 1));
    assert!(locker.keyed_semaphore(&name, 1).release("c").await.unwrap());
    in_time("the third waiter", third).await.unwrap();
}

/// It also leaves other state at the name as it is.
pub(crate) async fn evict_without_a_holder_returns_false(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let evict = async |kind| admin.evict(&admin.key(kind, &name)).await.unwrap();
    for kind in ["lock", "semaphore", "rwlock", "event", "counter"] {
        assert!(!evict(kind).await, "{kind}");
    }
    locker.event(&name).send("x").await.unwrap();
    assert!(!evict("event").await);
    assert_eq!(locker.event(&name).wait(GENEROUS).await.unwrap(), "x");
    locker.lock(&name).acquire().await.unwrap().release().await.unwrap();
    assert!(!evict("lock").await);
    let _writer = locker.write_lock(&name).acquire().await.unwrap();
    let reader = queued(&locker, "rwlock", &name, locker.read_lock(&name).timeout(GENEROUS).acquire()).await;
    assert!(evict("rwlock").await);
    in_time("the reader", reader).await.unwrap().release().await.unwrap();
}

pub(crate) async fn names_in_use_are_listed_and_idle_ones_are_not(locker: Locker) {
    let (admin, name, passing) = (locker.admin(), fresh_name(), fresh_name());
    let listed_at = async |name: &str| {
        let names = admin.names().await.unwrap();
        names.into_iter().filter(|(_, listed)| listed == name).map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    let listed = async || listed_at(&name).await;
    assert_eq!(listed().await, Vec::<String>::new());
    let guard = locker.lock(&name).acquire().await.unwrap();
    locker.counter(&name).add(3).await.unwrap();
    locker.event(&name).send("x").await.unwrap();
    locker.rate_limiter(&name, Quota::fixed_window(2, MINUTE * 10)).acquire().await.unwrap();
    assert_eq!(listed().await, ["counter", "event", "lock", "rate"]);
    guard.release().await.unwrap();
    locker.event(&name).reset().await.unwrap();
    locker.counter(&name).add(-3).await.unwrap();
    admin.delete(&admin.key("counter", &name)).await.unwrap();
    assert_eq!(listed().await, ["rate"]);
    locker.rate_limiter(&passing, Quota::fixed_window(2, span())).acquire().await.unwrap();
    pass(span() * 2);
    until("its window is over", async || listed_at(&passing).await.is_empty()).await;
}

pub(crate) async fn the_store_answers(locker: Locker) {
    locker.admin().ping().await.unwrap();
}
