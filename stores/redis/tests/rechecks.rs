//! Rechecks: they keep waiters in their places, and find grants whose notification was lost.

use crate::support::{
    GENEROUS, LEASE, MINUTE, PROMPT, commands_run, connect, connect_patiently, eternal_keys, hold, in_time,
    queue_permit, scripts_run, server_behind_proxy, until, waiting,
};
use locker::{ErrorKind, Locker};
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::Duration;
use tokio::task::JoinSet;

/// Queues `count` waiters for the lock `a`.
async fn crowd(server: &RedisServer, locker: &Locker, count: usize) -> JoinSet<locker::Result<()>> {
    let mut waiters = JoinSet::new();
    for _ in 0..count {
        let request = locker.lock("a").timeout(Duration::from_secs(300));
        waiters.spawn(async move { request.acquire().await?.release().await });
    }
    until("all places", async || waiting(server, "lock:a") == count).await;
    waiters
}

/// Returns the time at which the places of the only waiting process expire, in microseconds.
fn kept_until(server: &RedisServer) -> Option<f64> {
    let kept: Vec<String> = server.ask("ZRANGE", &["{lock:a}:p", "0", "0", "WITHSCORES"]);
    kept.get(1).map(|score| score.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_rechecks_all_waiters_of_a_process() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect_patiently(&server.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
    let waiters = crowd(&server, &locker, 500).await;
    let before = scripts_run(&server);
    let mut kept = kept_until(&server);
    for _ in 0..3 {
        until("another recheck", async || kept_until(&server) > kept).await;
        kept = kept_until(&server);
    }
    let calls = scripts_run(&server) - before;
    assert!((3..10).contains(&calls), "{calls} calls for 500 waiters");
    guard.release().await.unwrap();
    for waiter in in_time("all waiters", waiters.join_all()).await {
        waiter.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_queue_again_after_losing_places() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect_patiently(&server.url()).await;
    for count in [3, 1_000] {
        let guard = hold(&locker, "a").await;
        let waiters = crowd(&server, &locker, count).await;
        let _: i64 = server.ask("DEL", &["{lock:a}:q", "{lock:a}:w"]);
        until("their places", async || waiting(&server, "lock:a") == count).await;
        guard.release().await.unwrap();
        for waiter in in_time("all waiters", waiters.join_all()).await {
            waiter.unwrap();
        }
    }
}

/// The rechecks of its process keep a place for longer than the waiter's own request does.
#[tokio::test]
async fn rechecks_keep_the_place_of_a_waiter() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect_patiently(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let mut waiters = crowd(&server, &locker, 1).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &["{lock:a}:q", "0", "0"]).remove(0);
    let waiter: String = server.ask("HGET", &["{lock:a}:w", &id]);
    let words: Vec<&str> = waiter.split(' ').collect();
    let over = format!("{} 1 {} {}", words[0], words[2], words[3]);
    until("a recheck", async || kept_until(&server).is_some()).await;
    let _: i64 = server.ask("HSET", &["{lock:a}:w", &id, &over]);
    let before = scripts_run(&server);
    guard.release().await.unwrap();
    in_time("the waiter", waiters.join_next()).await.unwrap().unwrap().unwrap();
    assert!(scripts_run(&server) < before + 6, "it did not have to queue again");
}

/// The scripts are loaded with the connection, so that each waiter rechecks with a few bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnecting_crowd_sends_no_scripts() {
    const COUNT: usize = 3_000;
    let Some(server) = RedisServer::start() else { return };
    let locker = connect_patiently(&server.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
    let waiters = crowd(&server, &locker, COUNT).await;
    let (texts, asked) = (commands_run(&server, |name| name == "eval"), scripts_run(&server));
    // Redis 6.2 does not count subcommands.
    let loads = || commands_run(&server, |name| matches!(name, "script|load" | "script"));
    let before = loads();
    let _: String = server.ask("SCRIPT", &["FLUSH"]);
    let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "PUBSUB"]);
    until("all to have asked again", async || scripts_run(&server) >= asked + COUNT as u64).await;
    // Checking the new server takes two scripts of its own.
    let sent = commands_run(&server, |name| name == "eval") - texts;
    assert!(sent <= 1, "{sent} scripts in full");
    let loaded = loads() - before;
    assert!((1..40).contains(&loaded), "{loaded} scripts");
    assert_eq!(waiting(&server, "lock:a"), COUNT);
    guard.release().await.unwrap();
    for waiter in in_time("all waiters", waiters.join_all()).await {
        waiter.unwrap();
    }
}

/// A waiter is granted the permit in the reply to its own recheck.
#[tokio::test]
async fn grant_by_a_recheck_lasts() {
    let (server, _proxy, locker) = server_behind_proxy!();
    for _ in 0..10 {
        let (short, long) = (Duration::from_millis(60), LEASE);
        locker.keyed_semaphore("a", 1).acquire("first", short, GENEROUS).await.unwrap();
        locker.keyed_semaphore("a", 1).acquire("second", long, GENEROUS).await.unwrap();
        hold(&locker, "later").await.release().await.unwrap();
        assert!(locker.keyed_semaphore("a", 1).release("second").await.unwrap());
    }
    assert_eq!(eternal_keys(&server), [""; 0]);
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
    let channel = server.ask::<Vec<String>>("ZRANGE", &["{barrier:a}:w", "0", "0"]).remove(0);
    proxy.set(Fault::HoldRequests);
    let _: i64 = server.ask("PUBLISH", &[&channel, "barrier wake - 0 barrier:a"]);
    let admin = direct.admin();
    assert!(admin.delete(&admin.key("barrier", "a")).await.unwrap());
    proxy.set(Fault::None);
    let error = in_time("the conflict", waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    until("an empty queue", async || waiting(&server, "barrier:a") == 0).await;
    let alone = direct.barrier("a", 2).wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::TimedOut);
}

/// A permit handed off for a shorter time goes to the next waiter when that time is over.
#[tokio::test]
async fn shorter_hold_ends_for_the_waiter_behind() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect_patiently(&server.url()).await;
    locker.keyed_semaphore("a", 1).acquire("first", MINUTE, Duration::ZERO).await.unwrap();
    let brief = Duration::from_millis(300);
    let second = queue_permit(&server, &locker, "second", brief, GENEROUS).await;
    let third = queue_permit(&server, &locker, "third", MINUTE, PROMPT).await;
    assert!(locker.keyed_semaphore("a", 1).release("first").await.unwrap());
    in_time("the second", second).await.unwrap().unwrap();
    in_time("the third", third).await.unwrap().unwrap();
}

/// A holder renews for a shorter time: the waiter is served when that time is over.
#[tokio::test]
async fn shortened_hold_ends_for_the_waiter_behind() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect_patiently(&server.url()).await;
    locker.keyed_semaphore("a", 1).acquire("first", MINUTE, Duration::ZERO).await.unwrap();
    let second = queue_permit(&server, &locker, "second", MINUTE, PROMPT).await;
    assert!(locker.keyed_semaphore("a", 1).renew("first", Duration::from_millis(300)).await.unwrap());
    in_time("the second", second).await.unwrap().unwrap();
}
