//! Transactions that keep the lock until they commit.

use crate::support::{Database, MINUTE, NOT_HELD, fresh_name, lock, refused};
use locker::postgres::Fencing;
use locker_harness::{GENEROUS, in_time, until};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::time::sleep;

const BRIEF: Duration = Duration::from_millis(200);

#[tokio::test]
async fn held_passes_while_the_lock_is_held() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let lease = Duration::from_secs(3);
    let (guard, acquired) =
        (database.locker.lock(&name).lease(lease).acquire().await.unwrap(), Instant::now());
    assert_eq!(caller.check(guard.held_sql()).await, Ok(()));
    until("a renewal after the first lease", async || acquired.elapsed() > lease && guard.is_held()).await;
    assert_eq!(caller.check(guard.held_sql()).await, Ok(()), "after renewals");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn held_fails_for_other_keys_and_fences() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let guard = lock(&database.locker, &name, MINUTE).await;
    let (_, key, fence) = guard.held_sql();
    assert_eq!(caller.held(key, fence).await, Ok(()));
    assert_eq!(caller.held(key, fence - 1).await, refused(NOT_HELD));
    assert_eq!(caller.held(key, fence + 1).await, refused(NOT_HELD));
    assert_eq!(caller.held(key, 0).await, refused(NOT_HELD));
    assert_eq!(caller.held(&fresh_name(), fence).await, refused(NOT_HELD), "a key that does not exist");
    assert_eq!(caller.held(&name, fence).await, refused(NOT_HELD), "the name without the prefix of the key");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn held_fails_after_the_release() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let guard = lock(&database.locker, &name, MINUTE).await;
    let (key, fence) = (guard.key().to_owned(), guard.fence_sql().2);
    assert_eq!(caller.held(&key, fence).await, Ok(()));
    guard.release().await.unwrap();
    assert_eq!(caller.held(&key, fence).await, refused(NOT_HELD));
}

#[tokio::test]
async fn held_fails_after_the_lease() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let guard = lock(&database.locker, &name, BRIEF).await;
    in_time("the end of the lease", guard.lost()).await;
    // The lease ends a little later by the clock of the server, by its round trip at most.
    locker_harness::until("the refusal", async || caller.check(guard.held_sql()).await == refused(NOT_HELD))
        .await;
}

#[tokio::test]
async fn held_fails_for_an_earlier_grant() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let first = lock(&database.locker, &name, MINUTE).await;
    let (key, fence) = (first.key().to_owned(), first.fence_sql().2);
    let (second, released) = tokio::join!(lock(&database.locker, &name, MINUTE), async {
        // The second caller is to wait in line; if it comes later, the test still asserts the same.
        sleep(BRIEF).await;
        first.release().await
    });
    released.unwrap();
    assert_eq!(caller.held(&key, fence).await, refused(NOT_HELD), "handed off");
    assert_eq!(caller.check(second.held_sql()).await, Ok(()));
    second.release().await.unwrap();
    let third = lock(&database.locker, &name, MINUTE).await;
    assert_eq!(caller.held(&key, fence).await, refused(NOT_HELD));
    assert_eq!(caller.check(third.held_sql()).await, Ok(()));
    third.release().await.unwrap();
}

#[tokio::test]
async fn held_fails_after_an_eviction() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let guard = lock(&database.locker, &name, MINUTE).await;
    let admin = database.locker.admin();
    assert!(admin.evict_up_to(&admin.key("lock", &name), guard.fence()).await.unwrap());
    assert_eq!(caller.check(guard.held_sql()).await, refused(NOT_HELD));
}

/// Several holders at a time have no row that stands for one of them.
#[tokio::test]
async fn held_fails_for_permits_and_sides() {
    let Some(database) = Database::open().await else { return };
    let (caller, locker) = (database.client().await, &database.locker);
    let permit = locker.semaphore(&fresh_name(), 1).acquire().await.unwrap();
    assert_eq!(caller.check(permit.held_sql()).await, refused(NOT_HELD));
    let writer = locker.write_lock(&fresh_name()).acquire().await.unwrap();
    assert_eq!(caller.check(writer.held_sql()).await, refused(NOT_HELD));
    assert_eq!(caller.check(writer.fence_sql()).await, Ok(()));
    permit.release().await.unwrap();
    writer.release().await.unwrap();
}

/// A transaction stays open for 3 s after `locker_held`, beyond the lease.
#[tokio::test]
async fn next_holder_waits_for_the_commit() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let guard = lock(&database.locker, &name, Duration::from_millis(500)).await;
    caller.run("BEGIN").await.unwrap();
    caller.write(&name, guard.fence_sql().2).await.unwrap();
    caller.check(guard.held_sql()).await.unwrap();

    let is_over = Arc::new(AtomicBool::new(false));
    let (locker, waiting, over) = (database.locker.clone(), name.clone(), Arc::clone(&is_over));
    let next = tokio::spawn(async move {
        let next = lock(&locker, &waiting, MINUTE).await;
        assert!(over.load(Ordering::SeqCst), "the lock was granted before the commit");
        next
    });
    let others = others_are_served(&database, Duration::from_secs(3)).await;
    assert!(!guard.is_held() && !next.is_finished());

    is_over.store(true, Ordering::SeqCst);
    caller.run("COMMIT").await.unwrap();
    let committed = Instant::now();
    let next = in_time("the next grant", next).await.unwrap();
    println!("{others} grants of other keys; the next grant came {:?} after the commit", committed.elapsed());
    assert!(committed.elapsed() < Duration::from_secs(10), "{:?}", committed.elapsed());
    assert_eq!(database.effects(&name), guard.fence().to_string(), "the next holder sees the effects");
    assert!(next.fence() > guard.fence());
    next.release().await.unwrap();
}

/// Acquires and releases other locks for this long. Returns how many.
async fn others_are_served(database: &Database, time: Duration) -> usize {
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < time {
        let asked = Instant::now();
        let other = lock(&database.locker, &fresh_name(), MINUTE).await;
        other.release().await.expect("the store is available");
        assert!(asked.elapsed() < Duration::from_secs(2), "another key took {:?}", asked.elapsed());
        count += 1;
    }
    assert!(count > 10, "only {count} grants of other keys");
    count
}

/// The holder's own renewals and its release wait for the transaction, and are carried out after it.
#[tokio::test]
async fn release_after_a_long_transaction_succeeds() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let guard = database.locker.lock(&name).lease(Duration::from_secs(6)).acquire().await.unwrap();
    caller.run("BEGIN").await.unwrap();
    caller.check(guard.held_sql()).await.unwrap();
    // Under test: a transaction that lasts for longer than several renewals.
    sleep(Duration::from_secs(3)).await;
    assert!(guard.is_held());
    caller.run("COMMIT").await.unwrap();
    guard.release().await.unwrap();
    let next = in_time("the next grant", lock(&database.locker, &name, MINUTE)).await;
    next.release().await.unwrap();
}

/// Many transactions that keep their locks at a time do not use up the connections of the store.
#[tokio::test]
async fn many_open_transactions_do_not_stall_others() {
    let Some(database) = Database::open().await else { return };
    let (mut guards, mut callers, mut waiters) = (Vec::new(), Vec::new(), Vec::new());
    let is_over = Arc::new(AtomicBool::new(false));
    for _ in 0..8 {
        let (caller, name) = (database.client().await, fresh_name());
        let guard = lock(&database.locker, &name, GENEROUS).await;
        caller.run("BEGIN").await.unwrap();
        caller.check(guard.held_sql()).await.unwrap();
        let (locker, over) = (database.locker.clone(), Arc::clone(&is_over));
        waiters.push(tokio::spawn(async move {
            let next = lock(&locker, &name, MINUTE).await;
            assert!(over.load(Ordering::SeqCst), "the lock was granted before the commit");
            next.release().await.unwrap();
        }));
        guards.push(tokio::spawn(guard.release()));
        callers.push(caller);
    }
    others_are_served(&database, Duration::from_secs(2)).await;
    is_over.store(true, Ordering::SeqCst);
    for caller in &callers {
        caller.run("COMMIT").await.unwrap();
    }
    for guard in guards {
        // The release may have been told that the store was busy. It goes on in the background.
        let _ = in_time("the release", guard).await.unwrap();
    }
    for waiter in waiters {
        in_time("the next grant", waiter).await.unwrap();
    }
}

/// The wait for the row takes time: the clock is read after it.
#[tokio::test]
async fn held_looks_at_the_clock_after_its_wait() {
    let Some(database) = Database::open().await else { return };
    let (caller, blocker, observer) =
        (database.client().await, database.client().await, database.client().await);
    let name = fresh_name();
    let guard = lock(&database.locker, &name, Duration::from_secs(1)).await;
    let key = guard.key().to_owned();
    blocker.run("BEGIN").await.unwrap();
    let update = "UPDATE locker_keys SET over_at = over_at WHERE key = $1";
    assert_eq!(blocker.execute(update, &[&key]).await.unwrap(), 1);
    let (held, ()) = tokio::join!(caller.check(guard.held_sql()), async {
        database.blocked(&observer, caller.pid).await;
        guard.lost().await;
        // The end on the server's clock is a little later than the end that the guard knows.
        locker_harness::until("the end on the server's clock", async || {
            let sql = "SELECT held_until < extract(epoch FROM clock_timestamp()) * 1000000 FROM locker_keys WHERE key = $1";
            observer.query_one(sql, &[&key]).await.unwrap().get(0)
        })
        .await;
        blocker.run("COMMIT").await.unwrap();
    });
    assert_eq!(held, refused(NOT_HELD));
}

/// A renewal between the beginning of a transaction and its last statement.
#[tokio::test]
async fn renewal_is_a_conflict_above_read_committed() {
    let Some(database) = Database::open().await else { return };
    let (caller, observer, name) = (database.client().await, database.client().await, fresh_name());
    for (isolation, expected) in [
        ("READ COMMITTED", Ok(())),
        ("REPEATABLE READ", refused("40001")),
        ("SERIALIZABLE", refused("40001")),
    ] {
        let guard = database.locker.lock(&name).lease(Duration::from_secs(3)).acquire().await.unwrap();
        let held_until = async || -> i64 {
            let sql = "SELECT held_until FROM locker_keys WHERE key = $1";
            observer.query_one(sql, &[&guard.key()]).await.unwrap().get(0)
        };
        caller.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT FROM locker_meta")).await.unwrap();
        let before = held_until().await;
        until("a renewal within the transaction", async || held_until().await > before).await;
        assert_eq!(caller.check(guard.held_sql()).await, expected, "{isolation}");
        caller.run("ROLLBACK").await.unwrap();
        guard.release().await.unwrap();
    }
}
