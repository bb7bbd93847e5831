//! The keys on the server: how long they are kept, what they cost, and which fences they hold.

use crate::support::{GENEROUS, LAST_FENCE, MINUTE, connect, eternal_keys, in_time, until, waiting};
use locker::{ErrorKind, Locker, lock_on_argument};
use locker_harness::RedisServer;
use std::time::Duration;

/// Also if the server's clock goes back.
#[tokio::test]
async fn semaphore_fences_rise_over_a_deletion() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.semaphore("a", 2).acquire().await.unwrap();
    // As if the clock had been half a minute ahead.
    let ahead = guard.fence() + 30_000_000;
    let _: String = server.ask("SET", &[LAST_FENCE, &ahead.to_string()]);
    let admin = locker.admin();
    assert!(admin.delete(&admin.key("semaphore", "a")).await.unwrap());
    let next = locker.semaphore("a", 2).acquire().await.unwrap();
    assert!(next.fence() > ahead, "{} after {ahead}", next.fence());
    assert_eq!(eternal_keys(&server), [""; 0]);
}

/// A plain lock and `mode = "read"` of one name share the key, and their fences rise.
#[tokio::test]
async fn readers_follow_plain_locks_of_the_same_key() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let plain = || async { locker.lock_on("page", &[&7_u64]).try_acquire().await.unwrap().unwrap() };
    let (first, page) = (plain().await, &locker);
    let shared = async || read_page(page, 7).await;
    assert_eq!(shared().await.unwrap_err().kind(), ErrorKind::Conflict);
    let mut fences = vec![first.fence()];
    first.release().await.unwrap();
    fences.push(shared().await.unwrap());
    let last = plain().await;
    fences.push(last.fence());
    assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");
}

/// The holder's key is deleted, and the waiters have not rechecked yet.
#[tokio::test]
async fn readers_are_refused_while_a_lock_has_waiters() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let lost = locker.lock_on("page", &[&7_u64]).acquire().await.unwrap();
    let request = locker.lock_on("page", &[&7_u64]).timeout(GENEROUS).retry_delay(GENEROUS);
    let waiter = tokio::spawn(request.acquire());
    until("the waiter", async || waiting(&server, lost.key()) == 1).await;
    let _: i64 = server.ask("DEL", &[lost.key()]);
    assert_eq!(read_page(&locker, 7).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(waiting(&server, lost.key()), 1);
    waiter.abort();
}

#[lock_on_argument(name = "page", args(number), mode = "read", timeout = 0, guard = held, locker = locker)]
async fn read_page(locker: &Locker, number: u64) -> locker::Result<u64> {
    Ok(held.fence())
}

/// Also while a caller waits for the size to be raised.
#[tokio::test]
async fn last_semaphore_fence_is_kept_for_a_minute() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.semaphore("a", 1).acquire().await.unwrap();
    let parked = tokio::spawn(locker.semaphore("a", 0).timeout(GENEROUS).acquire());
    until("the waiter", async || waiting(&server, "semaphore:a") == 1).await;
    guard.release().await.unwrap();
    let left: i64 = server.ask("PTTL", &["semaphore:a"]);
    assert!(left > 50_000, "{left} ms");
    parked.abort();
}

/// The attempts of a holder are one list. Written once for each wait, it would cost the square of their number.
#[tokio::test]
async fn waits_of_one_holder_cost_linear_work() {
    const CROWD: u64 = 400;
    let Some(server) = RedisServer::with(&["--appendonly", "yes"]) else { return };
    let written = || {
        let facts: String = server.ask("INFO", &["persistence"]);
        let size = facts.lines().find_map(|line| line.strip_prefix("aof_current_size:")).unwrap();
        size.parse::<u64>().unwrap()
    };
    let locker = connect(&server.url()).await;
    locker.keyed_semaphore("a", 1).acquire("other", GENEROUS, Duration::ZERO).await.unwrap();
    let wait = |_| {
        let permits = locker.keyed_semaphore("a", 1);
        tokio::spawn(async move { permits.acquire("me", GENEROUS, GENEROUS).await })
    };
    let waits: Vec<_> = (0..CROWD).map(wait).collect();
    until("the crowd", async || waiting(&server, "semaphore:a") as u64 == CROWD).await;
    let before = written();
    assert!(locker.keyed_semaphore("a", 1).release("other").await.unwrap());
    for wait in waits {
        in_time("a wait", wait).await.unwrap().unwrap();
    }
    let each = (written() - before) / CROWD;
    assert!(each < 2_000, "{each} bytes per wait");
}

#[tokio::test]
async fn keys_expire_after_an_endless_hold() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let minute = Duration::from_secs(60);
    let keys = ["semaphore:a", "{semaphore:a}:a", "{semaphore:a}:b"];
    let times_to_live = || keys.map(|key| server.ask::<i64>("PTTL", &[key]));
    locker.keyed_semaphore("a", 3).acquire("short", minute, Duration::ZERO).await.unwrap();
    locker.keyed_semaphore("a", 3).acquire("endless", Duration::MAX, Duration::ZERO).await.unwrap();
    locker.keyed_semaphore("a", 3).acquire("other", Duration::MAX, Duration::ZERO).await.unwrap();
    assert!(locker.keyed_semaphore("a", 1).release("endless").await.unwrap());
    assert!(times_to_live().iter().all(|left| *left > 1_000_000), "an endless hold is left");
    assert!(locker.keyed_semaphore("a", 1).release("other").await.unwrap());
    let left = times_to_live();
    assert!(left.iter().all(|left| (100_000..=120_000).contains(left)), "{left:?}");
    assert!(locker.keyed_semaphore("a", 1).release("short").await.unwrap());
}

/// A hold without expiry is given one: the keys are kept no longer than that.
#[tokio::test]
async fn keys_expire_after_a_shortened_hold() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    locker.keyed_semaphore("a", 2).acquire("first", Duration::MAX, Duration::ZERO).await.unwrap();
    locker.keyed_semaphore("a", 2).acquire("second", MINUTE * 60, Duration::ZERO).await.unwrap();
    for (holder, most) in [("first", MINUTE * 61), ("second", MINUTE * 2)] {
        assert!(locker.keyed_semaphore("a", 1).renew(holder, MINUTE).await.unwrap());
        for key in ["semaphore:a", "{semaphore:a}:a", "{semaphore:a}:b"] {
            let left = Duration::from_millis(server.ask("PTTL", &[key]));
            assert!(left <= most && left + MINUTE > most, "{holder}: {key} {left:?}");
        }
    }
}

/// A hold whose expiry was forgotten would never end.
#[tokio::test]
async fn hold_expiries_outlive_patient_waiters() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let ends_are_known = || {
        let left = |key| server.ask::<i64>("PTTL", &[key]);
        let (ends, names, key) = (left("{semaphore:a}:a"), left("{semaphore:a}:b"), left("semaphore:a"));
        assert!(ends >= key && (names >= key || names == -2), "{ends} and {names} of {key}");
    };
    locker.keyed_semaphore("a", 1).acquire("holder", MINUTE, Duration::ZERO).await.unwrap();
    let patient = || locker.semaphore("a", 1).timeout(MINUTE).max_retry(3).retry_delay(MINUTE * 5);
    let next = tokio::spawn(patient().acquire());
    until("the next waiter in the queue", async || waiting(&server, "semaphore:a") == 1).await;
    let last = tokio::spawn(patient().acquire());
    until("the last waiter in the queue", async || waiting(&server, "semaphore:a") == 2).await;
    ends_are_known();
    assert!(locker.keyed_semaphore("a", 1).release("holder").await.unwrap());
    let next = in_time("the next waiter", next).await.unwrap().unwrap();
    ends_are_known();
    next.release().await.unwrap();
    in_time("the last waiter", last).await.unwrap().unwrap().release().await.unwrap();
}

#[lock_on_argument(name = "page", args(number), lease = "6s", locker = locker)]
async fn write_page(locker: &Locker, number: u64) -> locker::Result<()> {
    let _ = number;
    Ok(())
}

/// It was kept for 24 h: 20 short processes a second left 1.7 million notes.
#[tokio::test]
async fn note_ends_half_an_hour_after_its_last_lease() {
    const MINUTE: i64 = 60_000;
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    write_page(&locker, 7).await.unwrap();
    let left = |pattern: &str| -> i64 {
        let keys: Vec<String> = server.ask("KEYS", &[pattern]);
        keys.first().map_or(0, |key| server.ask("PTTL", &[key]))
    };
    let (note, function) = ("{locker}:holder:*", "{locker}:function:*");
    until("the texts", async || left(note) > 0 && left(function) > 0).await;
    assert!((29 * MINUTE..=32 * MINUTE).contains(&left(note)), "{} ms", left(note));
    assert!(left(function) > 23 * 60 * MINUTE, "{} ms", left(function));
    // A holder without a renewal may be listed for so long after its process.
    let hours = Duration::from_secs(2 * 3600);
    locker.lock("a").lease(hours).acquire().await.unwrap().release().await.unwrap();
    until("a longer note", async || left(note) > 149 * MINUTE).await;
}
