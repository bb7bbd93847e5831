//! Laws of locks whose holders are names that clients choose.

use crate::support::{
    GENEROUS, MINUTE, MINUTE_LEFT, SHORT, after, fresh_name, in_time, queued, queued_at, span, until,
    waiting_at,
};
use locker::{ErrorKind, Key, Locker};
use std::time::Duration;

/// A holder that acquires again under its own name keeps its hold, its fence and its expiry.
pub(crate) async fn repeated_acquire_keeps_hold_and_expiry(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let lock = locker.keyed_lock(&name);
    let first = lock.clone().acquire("me", MINUTE, Duration::ZERO).await.unwrap();
    let again = lock.clone().acquire("me", MINUTE * 10, Duration::ZERO).await.unwrap();
    assert_eq!(first.fence, again.fence);
    let state = admin.inspect(&admin.key("lock", &name)).await.unwrap().unwrap();
    assert_eq!((state.holders.len(), state.waiting, state.holders[0].fence), (1, 0, first.fence));
    assert!(state.holders[0].time_left.unwrap() <= MINUTE_LEFT);
    let other = lock.clone().acquire("other", MINUTE, Duration::ZERO).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::TimedOut);
    assert!(!lock.release("other").await.unwrap() && !lock.renew("other", MINUTE).await.unwrap());
    assert!(lock.release("me").await.unwrap());
    assert!(!lock.release("me").await.unwrap());
    let next = lock.clone().acquire("other", MINUTE, Duration::ZERO).await.unwrap();
    assert!(next.fence > first.fence);
    assert!(lock.release("other").await.unwrap());
}

/// A holder by name and the owner of a guard hold the same lock, one after the other, in the order in which they came.
pub(crate) async fn names_and_guards_take_turns(locker: Locker) {
    let name = fresh_name();
    let by_name = locker.keyed_lock(&name);
    let request = locker.lock(&name).timeout(GENEROUS);
    let held = by_name.clone().acquire("me", MINUTE, Duration::ZERO).await.unwrap();
    assert!(request.clone().try_acquire().await.unwrap().is_none());
    let first = queued(&locker, "lock", &name, request.clone().acquire()).await;
    let second = queued(&locker, "lock", &name, by_name.clone().acquire("you", MINUTE, GENEROUS)).await;
    let third = queued(&locker, "lock", &name, request.acquire()).await;
    assert!(by_name.release("me").await.unwrap());
    let first = in_time("the guard", first).await.unwrap();
    assert!(first.fence() > held.fence);
    let refused = by_name.clone().acquire("me", MINUTE, Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    first.release().await.unwrap();
    in_time("the name", second).await.unwrap();
    assert!(by_name.release("you").await.unwrap());
    in_time("the last guard", third).await.unwrap().release().await.unwrap();
}

/// A wait that times out or is dropped does not end the other waits of the same holder.
pub(crate) async fn waits_of_one_holder_are_independent(locker: Locker) {
    let name = fresh_name();
    let lock = locker.keyed_lock(&name);
    lock.clone().acquire("other", MINUTE, Duration::ZERO).await.unwrap();
    let impatient = lock.clone().acquire("me", MINUTE, SHORT);
    let patient = queued(&locker, "lock", &name, lock.clone().acquire("me", MINUTE, GENEROUS)).await;
    assert_eq!(in_time("the time-out", impatient).await.unwrap_err().kind(), ErrorKind::TimedOut);
    let dropped = queued(&locker, "lock", &name, lock.clone().acquire("me", MINUTE, GENEROUS)).await;
    let third = queued(&locker, "lock", &name, lock.clone().acquire("me", MINUTE, GENEROUS)).await;
    drop(dropped);
    assert!(lock.release("other").await.unwrap());
    let fence = in_time("the patient wait", patient).await.unwrap().fence;
    assert_eq!(in_time("the other wait", third).await.unwrap().fence, fence);
    assert!(lock.renew("me", MINUTE).await.unwrap());
    assert!(lock.release("me").await.unwrap());
}

/// All waits of one name get its hold, also one that has others in front of it, long before those are served.
pub(crate) async fn waits_behind_others_share_the_hold(locker: Locker) {
    let name = fresh_name();
    let lock = locker.keyed_lock(&name);
    lock.clone().acquire("holder", MINUTE, Duration::ZERO).await.unwrap();
    let first = queued(&locker, "lock", &name, lock.clone().acquire("me", MINUTE, GENEROUS)).await;
    let between = queued(&locker, "lock", &name, lock.clone().acquire("you", MINUTE, GENEROUS)).await;
    let second = queued(&locker, "lock", &name, lock.clone().acquire("me", MINUTE, GENEROUS)).await;
    assert!(lock.release("holder").await.unwrap());
    let (first, second) = in_time("both waits", async { tokio::try_join!(first, second) }).await.unwrap();
    assert_eq!(first, second);
    assert!(lock.release("me").await.unwrap());
    in_time("the next holder", between).await.unwrap();
    assert!(lock.release("you").await.unwrap());
}

/// A client that disconnects while it waits never holds later, and keeps nobody else out.
pub(crate) async fn a_dropped_wait_leaves_no_trace(locker: Locker) {
    let name = fresh_name();
    let lock = locker.keyed_lock(&name);
    lock.clone().acquire("holder", MINUTE, Duration::ZERO).await.unwrap();
    let late = in_time("the time-out", lock.clone().acquire("late", MINUTE, SHORT * 3)).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    waiting_at(&locker, "lock", &name, 0).await;
    drop(queued(&locker, "lock", &name, lock.clone().acquire("dropped", MINUTE, GENEROUS)).await);
    waiting_at(&locker, "lock", &name, 0).await;
    let next = queued(&locker, "lock", &name, lock.clone().acquire("next", MINUTE, GENEROUS)).await;
    assert!(lock.release("holder").await.unwrap());
    in_time("the next", next).await.unwrap();
    for gone in ["late", "dropped"] {
        assert!(!lock.release(gone).await.unwrap(), "{gone} holds nothing");
    }
    assert!(lock.release("next").await.unwrap());
}

/// A wait that is dropped when its turn has come passes the lock on.
pub(crate) async fn a_wait_dropped_at_its_turn_passes_on(locker: Locker) {
    let name = fresh_name();
    let lock = locker.keyed_lock(&name);
    lock.clone().acquire("holder", MINUTE, Duration::ZERO).await.unwrap();
    let dropped = queued(&locker, "lock", &name, lock.clone().acquire("dropped", MINUTE, GENEROUS)).await;
    let next = queued(&locker, "lock", &name, lock.clone().acquire("next", MINUTE, GENEROUS)).await;
    assert!(lock.release("holder").await.unwrap());
    drop(dropped);
    in_time("the next", next).await.unwrap();
    assert!(!lock.release("dropped").await.unwrap());
    assert!(lock.release("next").await.unwrap());
}

/// One hold serves two waits of the same holder. Dropping the first one keeps the hold that the second one returned.
pub(crate) async fn reported_hold_outlives_a_dropped_wait(locker: Locker) {
    let name = fresh_name();
    let lock = locker.keyed_lock(&name);
    lock.clone().acquire("other", MINUTE, Duration::ZERO).await.unwrap();
    let first = queued(&locker, "lock", &name, lock.clone().acquire("me", MINUTE, GENEROUS)).await;
    assert!(lock.release("other").await.unwrap());
    let fence = in_time("the second wait", lock.clone().acquire("me", MINUTE, GENEROUS)).await.unwrap().fence;
    drop(first);
    // The cancel of the dropped wait is sent before this.
    let probe = queued(&locker, "lock", &name, lock.clone().acquire("third", MINUTE, GENEROUS)).await;
    let again = lock.clone().acquire("me", MINUTE, Duration::ZERO).await.unwrap();
    assert_eq!(again.fence, fence);
    drop(probe);
    assert!(lock.release("me").await.unwrap());
}

/// A hold that nobody renews or releases ends, and a renewal never shortens one.
pub(crate) async fn a_hold_lasts_as_long_as_it_was_told(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let lock = locker.keyed_lock(&name);
    lock.clone().acquire("me", span(), Duration::ZERO).await.unwrap();
    let next = lock.clone().acquire("you", MINUTE, GENEROUS);
    after(span(), "the next holder", next).await.unwrap();
    assert!(!lock.release("me").await.unwrap() && !lock.renew("me", MINUTE).await.unwrap());
    let left = async || {
        let state = admin.inspect(&admin.key("lock", &name)).await.unwrap().unwrap();
        state.holders[0].time_left.unwrap()
    };
    assert!(lock.renew("you", MINUTE * 5).await.unwrap());
    assert!(lock.renew("you", MINUTE).await.unwrap());
    assert!(left().await > MINUTE * 4, "{:?}", left().await);
    assert!(lock.release("you").await.unwrap());
    for forbidden in [Duration::MAX, Duration::ZERO] {
        let refused = lock.clone().acquire("me", forbidden, Duration::ZERO).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Misused, "a lock always ends");
    }
}

/// The lock of `#[lock_on_argument]` can be held by its key.
pub(crate) async fn the_lock_of_an_attribute_has_a_key(locker: Locker) {
    let name = fresh_name();
    let guard = locker.lock_on(&name, &[&6222]).acquire().await.unwrap();
    let key = Key::new(guard.key());
    let lock = locker.keyed_lock_at(key.clone());
    let refused = lock.clone().acquire("me", MINUTE, Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    let waiting = queued_at(&locker, &key, lock.clone().acquire("me", MINUTE, GENEROUS)).await;
    guard.release().await.unwrap();
    in_time("the hold", waiting).await.unwrap();
    assert!(locker.lock_on(&name, &[&6222]).try_acquire().await.unwrap().is_none());
    assert!(lock.release("me").await.unwrap());
}

/// Many clients, each with its own name, and guards: no two hold at once, and all are served.
pub(crate) async fn two_never_hold_at_once(locker: Locker) {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    let (name, inside, turns) = (fresh_name(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (locker, name, inside, turns) = (locker.clone(), name.clone(), inside.clone(), turns.clone());
        tasks.spawn(async move {
            let check = || {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
                turns.fetch_add(1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
            };
            for _ in 0..25 {
                if number % 2 == 0 {
                    let guard = locker.lock(&name).timeout(GENEROUS).acquire().await.unwrap();
                    check();
                    guard.release().await.unwrap();
                } else {
                    let holder = format!("client {number}");
                    locker.keyed_lock(&name).acquire(&holder, MINUTE, GENEROUS).await.unwrap();
                    check();
                    assert!(locker.keyed_lock(&name).release(&holder).await.unwrap());
                }
            }
        });
    }
    in_time("all turns", async { while tasks.join_next().await.transpose().unwrap().is_some() {} }).await;
    assert_eq!(turns.load(Ordering::SeqCst), 200);
}

/// A read/write lock by name: readers share it, a writer is alone, guards take part.
pub(crate) async fn named_readers_share_and_a_writer_is_alone(locker: Locker) {
    use locker::Mode::{Read, Write};
    let name = fresh_name();
    let (readers, lone) = (locker.keyed_rwlock(&name, Read), locker.keyed_rwlock(&name, Write));
    for reader in ["one", "two"] {
        readers.clone().acquire(reader, MINUTE, Duration::ZERO).await.unwrap();
    }
    let guard = locker.read_lock(&name).acquire().await.unwrap();
    let writer = queued(&locker, "rwlock", &name, lone.clone().acquire("writer", MINUTE, GENEROUS)).await;
    readers.clone().acquire("three", MINUTE, Duration::ZERO).await.unwrap_err();
    guard.release().await.unwrap();
    assert!(readers.renew("one", MINUTE).await.unwrap());
    for reader in ["one", "two"] {
        assert!(readers.release(reader).await.unwrap());
    }
    in_time("the writer", writer).await.unwrap();
    assert!(locker.read_lock(&name).try_acquire().await.unwrap().is_none());
    assert!(lone.release("writer").await.unwrap());
    until("it is idle", async || {
        let admin = locker.admin();
        admin.inspect(&admin.key("rwlock", &name)).await.unwrap().is_none()
    })
    .await;
}
