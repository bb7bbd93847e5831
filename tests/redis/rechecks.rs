//! What keeps waiters in their places, and what it costs: asking for all waiters of a process at once, dead ones, and
//! connections that are made again.

use crate::support::{
    GENEROUS, LEASE, builder, commands_run, connect, hold, in_time, scripts_run, until, waiting,
};
use locker::{ErrorKind, Locker};
use locker_harness::RedisServer;
use std::time::Duration;
use tokio::task::JoinSet;

/// `count` waiters for the lock `a`, all of which have their places.
async fn crowd(server: &RedisServer, locker: &Locker, count: usize) -> JoinSet<locker::Result<()>> {
    let mut waiters = JoinSet::new();
    for _ in 0..count {
        let request = locker.lock("a").timeout(Duration::from_secs(300));
        waiters.spawn(async move { request.acquire().await?.release().await });
    }
    until("all places", async || waiting(server, "lock:a") == count).await;
    waiters
}

/// When the places of the only process that waits are given up, in microseconds.
fn kept_until(server: &RedisServer) -> Option<f64> {
    let kept: Vec<String> = server.ask("ZRANGE", &["{lock:a}:p", "0", "0", "WITHSCORES"]);
    kept.get(1).map(|score| score.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_rechecks_all_waiters_of_a_process() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
    let waiters = crowd(&server, &locker, 500).await;
    let before = scripts_run(&server);
    let mut kept = kept_until(&server);
    for _ in 0..3 {
        until("another look", async || kept_until(&server) > kept).await;
        kept = kept_until(&server);
    }
    let looks = scripts_run(&server) - before;
    assert!((3..10).contains(&looks), "{looks} calls for 500 waiters");
    guard.release().await.unwrap();
    for waiter in in_time("all turns", waiters.join_all()).await {
        waiter.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_queue_again_after_losing_places() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    for count in [3, 1_000] {
        let guard = hold(&locker, "a").await;
        let waiters = crowd(&server, &locker, count).await;
        let _: i64 = server.ask("DEL", &["{lock:a}:q", "{lock:a}:w"]);
        until("their places", async || waiting(&server, "lock:a") == count).await;
        guard.release().await.unwrap();
        for waiter in in_time("their turns", waiters.join_all()).await {
            waiter.unwrap();
        }
    }
}

/// Longer than its own place is kept: what its process asks for keeps it.
#[tokio::test]
async fn rechecks_keep_the_place_of_a_waiter() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let mut waiters = crowd(&server, &locker, 1).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &["{lock:a}:q", "0", "0"]).remove(0);
    let waiter: String = server.ask("HGET", &["{lock:a}:w", &id]);
    let words: Vec<&str> = waiter.split(' ').collect();
    let over = format!("{} 1 {} {}", words[0], words[2], words[3]);
    until("a look", async || kept_until(&server).is_some()).await;
    let _: i64 = server.ask("HSET", &["{lock:a}:w", &id, &over]);
    let before = scripts_run(&server);
    guard.release().await.unwrap();
    in_time("its turn", waiters.join_next()).await.unwrap().unwrap().unwrap();
    assert!(scripts_run(&server) < before + 6, "it did not have to queue again");
}

#[tokio::test]
async fn dead_waiters_are_removed_a_thousand_at_a_time() {
    const DEAD: usize = 50_000;
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let now: (u64, u64) = server.ask("TIME", &[]);
    let waiter = format!("10000 {} fair locker:push:gone", (now.0 + 600) * 1_000_000);
    let mut connection = server.connection();
    for thousand in 0..DEAD / 1_000 {
        let mut pipe = redis::pipe();
        for number in 0..1_000 {
            let number = thousand * 1_000 + number;
            let id = format!("{number:032x}");
            pipe.cmd("ZADD").arg("{lock:a}:q").arg(number + 1).arg(&id).ignore();
            pipe.cmd("HSET").arg("{lock:a}:w").arg(&id).arg(&waiter).ignore();
        }
        pipe.exec(&mut connection).unwrap();
    }
    let next = tokio::spawn(locker.lock("a").acquire());
    until("the place behind them", async || waiting(&server, "lock:a") == DEAD + 1).await;
    let removals = |server: &RedisServer| commands_run(server, |name| name == "zrem");
    let (before, scripts) = (removals(&server), scripts_run(&server));
    let messages = commands_run(&server, |name| name == "publish");
    guard.release().await.unwrap();
    let next = in_time("the one that lives", next).await.unwrap().unwrap();
    assert_eq!(waiting(&server, "lock:a"), 0);
    let (removals, scripts) = (removals(&server) - before, scripts_run(&server) - scripts);
    assert!(scripts >= 50, "{scripts} calls");
    assert!(removals <= scripts * 32, "{removals} in {scripts} calls");
    let messages = commands_run(&server, |name| name == "publish") - messages;
    assert!(messages <= scripts + 1, "{messages} messages in {scripts} calls");
    next.release().await.unwrap();
}

/// Their scripts are loaded with the connection, so that each asks again with a few bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnecting_crowd_sends_no_scripts() {
    const COUNT: usize = 3_000;
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
    let waiters = crowd(&server, &locker, COUNT).await;
    let (texts, asked) = (commands_run(&server, |name| name == "eval"), scripts_run(&server));
    let loads = commands_run(&server, |name| name == "script|load");
    let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "PUBSUB"]);
    until("all to have asked again", async || scripts_run(&server) >= asked + COUNT as u64).await;
    // Checking the new server takes two scripts of its own.
    let sent = commands_run(&server, |name| name == "eval") - texts;
    assert!(sent <= 1, "{sent} scripts in full");
    let loaded = commands_run(&server, |name| name == "script|load") - loads;
    assert!((1..40).contains(&loaded), "{loaded} scripts");
    assert_eq!(waiting(&server, "lock:a"), COUNT);
    guard.release().await.unwrap();
    for waiter in in_time("all turns", waiters.join_all()).await {
        waiter.unwrap();
    }
}

#[tokio::test]
async fn a_user_that_may_not_load_scripts_sends_them() {
    let Some(server) = RedisServer::start() else { return };
    let _: String = server.ask("ACL", &["SETUSER", "default", "-script|load"]);
    let locker = connect(&server.url()).await;
    hold(&locker, "a").await.release().await.unwrap();
    let _: String = server.ask("SCRIPT", &["FLUSH"]);
    hold(&locker, "a").await.release().await.unwrap();
}

#[tokio::test]
async fn server_is_checked_at_every_connect() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    hold(&locker, "a").await.release().await.unwrap();
    let _: String = server.ask("CONFIG", &["SET", "maxmemory-policy", "allkeys-lru"]);
    let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "PUBSUB"]);
    let refused = async || {
        let error = locker.lock("a").timeout(LEASE).acquire().await.err();
        error
            .is_some_and(|error| error.kind() == ErrorKind::Misused && error.message().contains("noeviction"))
    };
    until("the refusal", refused).await;
    let _: String = server.ask("CONFIG", &["SET", "maxmemory-policy", "noeviction"]);
    until("the server's mending", async || locker.lock("a").acquire().await.is_ok()).await;
}

/// A script that fails has changed nothing: the hold is released when its cause is gone.
#[tokio::test]
async fn a_release_that_is_refused_leaves_the_hold() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).lease(GENEROUS * 2).build().await.unwrap();
    for helper in ["{lock:a}:q", "{lock:a}:w"] {
        let guard = hold(&locker, "a").await;
        let _: i64 = server.ask("RPUSH", &["{lock:a}:q", "precious"]);
        if helper.ends_with('w') {
            let _: i64 = server.ask("DEL", &["{lock:a}:q"]);
            let _: i64 = server.ask("ZADD", &["{lock:a}:q", "1", "0123456789abcdef0123456789abcdef"]);
            let _: i64 = server.ask("RPUSH", &["{lock:a}:w", "precious"]);
        }
        let id = guard.id().to_owned();
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(crate::support::holder(&server, "lock:a"), Some(id));
        let _: i64 = server.ask("DEL", &["lock:a", "{lock:a}:q", "{lock:a}:w"]);
    }
}
