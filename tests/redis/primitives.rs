//! What only a server across a network can do to the primitives beside the lock.

use crate::support::{
    GENEROUS, connect, eternal_keys, hold, in_time, scripts_run, tell_late, until, waiting,
};
use locker::{ErrorKind, Grant, Locker, lock_on_argument};
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The reply to the first copy was lost, and another caller has added since.
#[tokio::test]
async fn repeated_addition_returns_its_own_sum() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    behind.counter("a").add(0).await.unwrap();
    proxy.set(Fault::DropReplies);
    let adding = tokio::spawn({
        let counter = behind.counter("a");
        async move { counter.add(1).await }
    });
    until("it being added", async || direct.counter("a").get().await.unwrap() == 1).await;
    assert_eq!(direct.counter("a").add(1).await.unwrap(), 2);
    proxy.set(Fault::None);
    assert_eq!(in_time("the answer", adding).await.unwrap().unwrap(), 1);
    assert_eq!(direct.counter("a").get().await.unwrap(), 2);
}

/// Its caller has given up at the barrier.
#[tokio::test]
async fn late_arrival_does_not_count() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    behind.barrier("known", 1).wait(GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    behind.barrier("a", 2).wait(Duration::from_millis(100)).await.unwrap_err();
    until("the caller being taken back", async || server.ask::<usize>("ZCARD", &["{barrier:a}:a"]) == 1)
        .await;
    let before = scripts_run(&server);
    proxy.set_for_open(Fault::None);
    until("the late copy", async || scripts_run(&server) > before).await;
    assert_eq!(waiting(&server, "barrier:a"), 0);
    let alone = direct.barrier("a", 2).wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::TimedOut);
}

/// Its caller has given up at the barrier.
#[tokio::test]
async fn late_final_check_does_not_count() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let barrier = behind.barrier("a", 2);
    let gone = tokio::spawn(async move { barrier.wait(Duration::from_secs(1)).await });
    until("who leaves", async || waiting(&server, "barrier:a") == 1).await;
    proxy.set_for_open(Fault::HoldRequests);
    in_time("the end of its patience", gone).await.unwrap().unwrap_err();
    until("its place being given up", async || waiting(&server, "barrier:a") == 0).await;
    let barrier = direct.barrier("a", 2);
    let alone = tokio::spawn(async move { barrier.wait(GENEROUS).await });
    until("the one who waits", async || waiting(&server, "barrier:a") == 1).await;
    let before = scripts_run(&server);
    proxy.set_for_open(Fault::None);
    until("the late copy", async || scripts_run(&server) > before).await;
    assert_eq!(waiting(&server, "barrier:a"), 1, "it went on alone");
    direct.barrier("a", 2).wait(GENEROUS).await.unwrap();
    in_time("both", alone).await.unwrap().unwrap();
}

/// The recheck is on its way while another client deletes the name.
#[tokio::test]
async fn recheck_of_a_deleted_name_leaves_no_place() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let barrier = behind.barrier("a", 2);
    let waiter = tokio::spawn(async move { barrier.wait(GENEROUS).await });
    until("the waiter", async || waiting(&server, "barrier:a") == 1).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &["{barrier:a}:q", "0", "0"]).remove(0);
    let channel: String = server.ask("HGET", &["{barrier:a}:w", &id]);
    proxy.set(Fault::HoldRequests);
    let _: i64 = server.ask("PUBLISH", &[&channel, &format!("barrier wake {id} 0 barrier:a")]);
    let admin = direct.admin();
    assert!(admin.delete(&admin.key("barrier", "a")).await.unwrap());
    proxy.set(Fault::None);
    let error = in_time("the waiter being told", waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    until("its place being given up", async || waiting(&server, "barrier:a") == 0).await;
    let alone = direct.barrier("a", 2).wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::TimedOut);
}

/// After the grant window.
#[tokio::test]
async fn silent_unfair_waiter_is_passed_over() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let guard = direct.semaphore("a", 1).acquire().await.unwrap();
    let request = behind.semaphore("a", 1).fair(false).timeout(GENEROUS).retry_delay(GENEROUS);
    let silent = tokio::spawn(request.acquire());
    until("the first in line", async || waiting(&server, "semaphore:a") == 1).await;
    let next = tokio::spawn(direct.semaphore("a", 1).timeout(Duration::from_secs(8)).acquire());
    until("the second in line", async || waiting(&server, "semaphore:a") == 2).await;
    proxy.set(Fault::DropReplies);
    guard.release().await.unwrap();
    in_time("the second in line", next).await.unwrap().unwrap().release().await.unwrap();
    silent.abort();
}

/// Long enough for what is told, too short for who asks again without being told.
const TOLD: Duration = Duration::from_secs(8);
const MINUTE: Duration = Duration::from_secs(60);

/// Asks for the one place of `a`, and is in line.
async fn join(
    server: &RedisServer,
    locker: &Locker,
    holder: &'static str,
    expires: Duration,
    timeout: Duration,
) -> JoinHandle<locker::Result<Grant>> {
    let (permits, before) = (locker.keyed_semaphore("a"), waiting(server, "semaphore:a"));
    let joined = tokio::spawn(async move { permits.acquire(1, holder, expires, timeout).await });
    until("its place in line", async || waiting(server, "semaphore:a") > before).await;
    joined
}

/// A permit handed off for a shorter time goes to the next waiter when that time is over.
#[tokio::test]
async fn shorter_hold_ends_for_the_waiter_behind() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    locker.keyed_semaphore("a").acquire(1, "first", MINUTE, Duration::ZERO).await.unwrap();
    let brief = Duration::from_millis(300);
    let second = join(&server, &locker, "second", brief, GENEROUS).await;
    let third = join(&server, &locker, "third", MINUTE, TOLD).await;
    assert!(locker.keyed_semaphore("a").release("first").await.unwrap());
    in_time("the second", second).await.unwrap().unwrap();
    in_time("the third", third).await.unwrap().unwrap();
}

/// A holder renews for a shorter time: the waiter is served when that time is over.
#[tokio::test]
async fn shortened_hold_ends_for_the_waiter_behind() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    locker.keyed_semaphore("a").acquire(1, "first", MINUTE, Duration::ZERO).await.unwrap();
    let second = join(&server, &locker, "second", MINUTE, TOLD).await;
    assert!(locker.keyed_semaphore("a").renew("first", Duration::from_millis(300)).await.unwrap());
    in_time("the second", second).await.unwrap().unwrap();
}

/// After the grant window.
#[tokio::test]
async fn silent_successor_is_passed_over() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    direct.keyed_semaphore("a").acquire(1, "first", MINUTE, Duration::ZERO).await.unwrap();
    let silent = join(&server, &behind, "silent", MINUTE, GENEROUS).await;
    let next = join(&server, &direct, "next", MINUTE, TOLD).await;
    proxy.set(Fault::DropReplies);
    assert!(direct.keyed_semaphore("a").release("first").await.unwrap());
    in_time("the second in line", next).await.unwrap().unwrap();
    silent.abort();
}

/// Granted, not taken in time, asked again and granted at once: the message, held up on an old connection, comes when nobody
/// waits any more.
#[tokio::test]
async fn late_notification_spares_a_keyed_hold() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    locker.keyed_semaphore("a").acquire(1, "first", MINUTE, Duration::ZERO).await.unwrap();
    let second = join(&server, &locker, "second", MINUTE, GENEROUS).await;
    let attempt = server.ask::<Vec<String>>("ZRANGE", &["{semaphore:a}:q", "0", "0"]).remove(0);
    let keys: Vec<String> = server.ask("KEYS", &["*semaphore:a*"]);
    let _: i64 = server.ask("DEL", &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let _: i64 = server.ask("PUBLISH", &[&channels[0], &format!("semaphore wake {attempt} 0 semaphore:a")]);
    in_time("the answer to asking again", second).await.unwrap().unwrap();
    tell_late(&server, &format!("semaphore granted {attempt} 1 semaphore:a")).await;
    let third = locker.keyed_semaphore("a").acquire(1, "third", MINUTE, Duration::ZERO).await;
    assert_eq!(third.unwrap_err().kind(), ErrorKind::TimedOut);
}

/// Also if the server's clock goes back.
#[tokio::test]
async fn semaphore_fences_rise_over_a_deletion() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.semaphore("a", 2).acquire().await.unwrap();
    // As if the clock had been half a minute ahead.
    let ahead = guard.fence() + 30_000_000;
    let _: i64 = server.ask("HSET", &["semaphore:a", "fence", &ahead.to_string()]);
    let admin = locker.admin();
    assert!(admin.delete(&admin.key("semaphore", "a")).await.unwrap());
    let next = locker.semaphore("a", 2).acquire().await.unwrap();
    assert!(next.fence() > ahead, "{} after {ahead}", next.fence());
    assert_eq!(eternal_keys(&server), [""; 0]);
}

/// As `mode = "read"` and a plain lock of one name have it.
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

/// Its holder is gone, and those in line have not asked again yet.
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
    until("who waits for a size", async || waiting(&server, "semaphore:a") == 1).await;
    guard.release().await.unwrap();
    let left: i64 = server.ask("PTTL", &["semaphore:a"]);
    assert!(left > 50_000, "{left} ms");
    parked.abort();
}

/// Another client deletes the key.
#[tokio::test]
async fn deleted_semaphore_serves_its_waiters() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let lost = locker.semaphore("a", 2).permits(2).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for count in 1..=2 {
        let request = locker.semaphore("a", 2).timeout(Duration::from_secs(20)).retry_delay(GENEROUS);
        waiters.push(tokio::spawn(request.acquire()));
        until("the waiter", async || waiting(&server, "semaphore:a") == count).await;
    }
    let _: i64 = server.ask("DEL", &["semaphore:a"]);
    assert!(locker.semaphore("a", 2).try_acquire().await.unwrap().is_none(), "it is for those who wait");
    for waiter in waiters {
        in_time("a waiter", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(lost.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn waiter_creates_a_deleted_semaphore_again() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let lost = locker.semaphore("a", 1).acquire().await.unwrap();
    let request = locker.semaphore("a", 1).timeout(GENEROUS).retry_delay(Duration::from_millis(200));
    let waiter = tokio::spawn(request.acquire());
    until("the waiter", async || waiting(&server, "semaphore:a") == 1).await;
    let _: i64 = server.ask("DEL", &["semaphore:a"]);
    let next = in_time("the waiter", waiter).await.unwrap().unwrap();
    assert!(next.fence() > lost.fence());
    let _ = lost.release().await;
    next.release().await.unwrap();
}

/// What is known of them is a list. Written for each of them, it makes as much as the square of their number.
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
    locker.keyed_semaphore("a").acquire(1, "other", GENEROUS, Duration::ZERO).await.unwrap();
    let wait = |_| {
        let permits = locker.keyed_semaphore("a");
        tokio::spawn(async move { permits.acquire(1, "me", GENEROUS, GENEROUS).await })
    };
    let waits: Vec<_> = (0..CROWD).map(wait).collect();
    until("the crowd", async || waiting(&server, "semaphore:a") as u64 == CROWD).await;
    let before = written();
    assert!(locker.keyed_semaphore("a").release("other").await.unwrap());
    for wait in waits {
        in_time("a wait", wait).await.unwrap().unwrap();
    }
    let each = (written() - before) / CROWD;
    assert!(each < 2_000, "{each} bytes for each of them");
}

/// Another client deletes the key.
#[tokio::test]
async fn deleted_latch_stays_shut_for_its_waiters() {
    let Some(server) = RedisServer::start() else { return };
    let latch = connect(&server.url()).await.latch("a", 1);
    let waiter = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait(GENEROUS).await }
    });
    until("the waiter", async || waiting(&server, "latch:a") == 1).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &["{latch:a}:q", "0", "0"]).remove(0);
    let channel: String = server.ask("HGET", &["{latch:a}:w", &id]);
    let _: i64 = server.ask("DEL", &["latch:a"]);
    let before = scripts_run(&server);
    let _: i64 = server.ask("PUBLISH", &[&channel, &format!("latch wake {id} 0 latch:a")]);
    until("its asking again", async || scripts_run(&server) > before).await;
    assert_eq!(waiting(&server, "latch:a"), 1, "nobody has counted");
    assert_eq!(latch.count_down().await.unwrap(), 0);
    in_time("the waiter", waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn keys_expire_after_an_endless_hold() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let minute = Duration::from_secs(60);
    let keys = ["semaphore:a", "{semaphore:a}:a", "{semaphore:a}:b"];
    let times_to_live = || keys.map(|key| server.ask::<i64>("PTTL", &[key]));
    locker.keyed_semaphore("a").acquire(3, "short", minute, Duration::ZERO).await.unwrap();
    locker.keyed_semaphore("a").acquire(3, "endless", Duration::MAX, Duration::ZERO).await.unwrap();
    locker.keyed_semaphore("a").acquire(3, "other", Duration::MAX, Duration::ZERO).await.unwrap();
    assert!(locker.keyed_semaphore("a").release("endless").await.unwrap());
    assert!(times_to_live().iter().all(|left| *left > 1_000_000), "one without end is left");
    assert!(locker.keyed_semaphore("a").release("other").await.unwrap());
    let left = times_to_live();
    assert!(left.iter().all(|left| (100_000..=120_000).contains(left)), "{left:?}");
    assert!(locker.keyed_semaphore("a").release("short").await.unwrap());
}

/// A hold without expiry is given one: the keys are kept no longer than that.
#[tokio::test]
async fn keys_expire_after_a_shortened_hold() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    locker.keyed_semaphore("a").acquire(2, "first", Duration::MAX, Duration::ZERO).await.unwrap();
    locker.keyed_semaphore("a").acquire(2, "second", MINUTE * 60, Duration::ZERO).await.unwrap();
    for (holder, most) in [("first", MINUTE * 61), ("second", MINUTE * 2)] {
        assert!(locker.keyed_semaphore("a").renew(holder, MINUTE).await.unwrap());
        for key in ["semaphore:a", "{semaphore:a}:a", "{semaphore:a}:b"] {
            let left = Duration::from_millis(server.ask("PTTL", &[key]));
            assert!(left <= most && left + MINUTE > most, "{holder}: {key} {left:?}");
        }
    }
}

/// A hold whose end was forgotten would have none.
#[tokio::test]
async fn hold_expiries_outlive_patient_waiters() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let ends_are_known = || {
        let left = |key| server.ask::<i64>("PTTL", &[key]);
        let (ends, names, key) = (left("{semaphore:a}:a"), left("{semaphore:a}:b"), left("semaphore:a"));
        assert!(ends >= key && (names >= key || names == -2), "{ends} and {names} of {key}");
    };
    locker.keyed_semaphore("a").acquire(1, "holder", MINUTE, Duration::ZERO).await.unwrap();
    let patient = || locker.semaphore("a", 1).timeout(MINUTE).max_retry(3).retry_delay(MINUTE * 5);
    let next = tokio::spawn(patient().acquire());
    until("the next in line", async || waiting(&server, "semaphore:a") == 1).await;
    let last = tokio::spawn(patient().acquire());
    until("the last in line", async || waiting(&server, "semaphore:a") == 2).await;
    ends_are_known();
    assert!(locker.keyed_semaphore("a").release("holder").await.unwrap());
    let next = in_time("the next in line", next).await.unwrap().unwrap();
    ends_are_known();
    next.release().await.unwrap();
    in_time("the last in line", last).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn binary_key_does_not_break_the_name_list() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let _: () = redis::cmd("SET").arg(&[0xff_u8, 0xfe][..]).arg(1).query(&mut server.connection()).unwrap();
    assert_eq!(locker.admin().names().await.unwrap(), [("lock".to_owned(), "a".to_owned())]);
    guard.release().await.unwrap();
}
