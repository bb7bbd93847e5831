//! Connections that break and are made again.

use crate::support::{connect, eternal_keys, hold, in_time, server_behind_proxy, until, waiting};
use locker::Filter;
use locker_harness::{Fault, Proxy, RedisServer};
use std::{
    future::Future,
    sync::Arc,
    task::{Context, Wake},
    time::Duration,
};

#[tokio::test]
async fn timed_out_renewal_uses_a_new_connection() {
    let (server, proxy, locker) = server_behind_proxy!();
    let guard = locker.lock("a").lease(Duration::from_secs(3)).acquire().await.unwrap();
    let before = proxy.accepted();
    proxy.set_for_open(Fault::DropRequests);
    until("another connection", async || proxy.accepted() > before).await;
    until("a renewal over it", async || server.ask::<i64>("PTTL", &["lock:a"]) > 2_500).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// Checks that holds, places in the queue and notifications survive `break_it`.
async fn survives(break_it: impl AsyncFn(&RedisServer, &Proxy)) {
    let (server, proxy, locker) = server_behind_proxy!();
    let other = connect(&server.url()).await;
    let guard = hold(&locker, "held by the broken one").await;
    let before = hold(&other, "a").await;
    let (first, second) = (locker.clone(), locker.clone());
    let first = tokio::spawn(async move { hold(&first, "a").await });
    until("the first waiter in the queue", async || waiting(&server, "lock:a") == 1).await;
    let second = tokio::spawn(async move { hold(&second, "a").await });
    until("the second waiter in the queue", async || waiting(&server, "lock:a") == 2).await;
    break_it(&server, &proxy).await;
    in_time("work over a new connection", locker.lock("b").acquire()).await.unwrap().release().await.unwrap();
    before.release().await.unwrap();
    let first = in_time("the first", first).await.unwrap();
    assert!(!second.is_finished(), "the second comes after the first");
    first.release().await.unwrap();
    in_time("the second", second).await.unwrap().release().await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn waiters_and_holders_survive_a_reset() {
    survives(async |_, proxy| {
        let before = proxy.accepted();
        proxy.set(Fault::Reset);
        until("a new try", async || proxy.accepted() > before).await;
        proxy.set(Fault::None);
    })
    .await;
}

#[tokio::test]
async fn waiters_and_holders_survive_a_half_close() {
    survives(async |_, proxy| {
        let before = proxy.accepted();
        proxy.set_for_open(Fault::HalfClose);
        until("a new connection", async || proxy.accepted() > before).await;
    })
    .await;
}

#[tokio::test]
async fn waiters_and_holders_survive_lost_replies() {
    survives(async |_, proxy| {
        let before = proxy.accepted();
        proxy.set_for_open(Fault::DropReplies);
        until("a new connection", async || proxy.accepted() > before).await;
    })
    .await;
}

#[tokio::test]
async fn waiters_and_holders_survive_client_kill() {
    survives(async |server, proxy| {
        let before = proxy.accepted();
        let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "pubsub"]);
        until("a new connection", async || proxy.accepted() > before).await;
    })
    .await;
}

#[tokio::test]
async fn one_connection_carries_commands_and_messages() {
    let Some(server) = RedisServer::start() else { return };
    let lockers = [connect(&server.url()).await, connect(&server.url()).await];
    let guard = hold(&lockers[0], "a").await;
    let waiters: Vec<_> = (0..50)
        .map(|number: usize| {
            let locker = lockers[number % 2].clone();
            tokio::spawn(async move { hold(&locker, "a").await.release().await })
        })
        .collect();
    until("all waiters in the queue", async || waiting(&server, "lock:a") == 50).await;
    let clients = || server.ask::<String>("CLIENT", &["LIST"]);
    until("one connection beside the test's own", async || clients().lines().count() == 2).await;
    assert!(clients().lines().any(|client| client.contains(" sub=1 ")), "{}", clients());
    guard.release().await.unwrap();
    for waiter in waiters {
        in_time("a waiter", waiter).await.unwrap().unwrap();
    }
    drop(lockers);
    until("the connection being closed", async || {
        clients().lines().count() == 1 && server.ask::<Vec<String>>("PUBSUB", &["CHANNELS", "*"]).is_empty()
    })
    .await;
    assert_eq!(eternal_keys(&server), [""; 0]);
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        // The end of the connection wakes it too, and a second panic then ends the program.
        assert!(std::thread::panicking(), "a waker panics");
    }
}

/// The connection that the panic ends is replaced at once.
#[tokio::test]
async fn panicking_waker_costs_one_connection() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let listening = || server.ask::<String>("CLIENT", &["LIST", "TYPE", "pubsub"]);
    let first = listening();
    // A reply that is there at once wakes no task. A call beside another one is queued, and a queue contains the panic.
    let waker = Arc::new(Panicking).into();
    let abandon = || {
        let mut acquire = Box::pin(locker.lock("a").acquire());
        let _ = acquire.as_mut().poll(&mut Context::from_waker(&waker));
        acquire
    };
    let id = |client: &str| client.split(' ').next().map(str::to_owned);
    until("another connection", async || {
        let _abandoned = abandon();
        !listening().is_empty() && id(&listening()) != id(&first)
    })
    .await;
}

/// Where a server is in its list of keys means nothing to the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_begins_anew_over_a_new_connection() {
    let (server, proxy, locker) = server_behind_proxy!();
    let fill =
        "for number = 1, 8000 do redis.call('SET', 'lock:' .. number, string.rep('5', 32), 'PX', 600000) end";
    let _: redis::Value = server.ask("EVAL", &[fill, "0"]);
    for (setting, value) in [("slowlog-log-slower-than", "0"), ("slowlog-max-len", "100000")] {
        let _: String = server.ask("CONFIG", &["SET", setting, value]);
    }
    let scans = || {
        let log: Vec<(i64, i64, i64, Vec<String>)> = server
            .ask::<Vec<Vec<redis::Value>>>("SLOWLOG", &["GET", "100000"])
            .into_iter()
            .map(|entry| redis::from_redis_value(redis::Value::Array(entry[..4].to_vec())).unwrap())
            .collect();
        let scans = log.into_iter().map(|entry| entry.3).filter(|command| command[0] == "SCAN");
        scans.map(|command| command[1].clone()).collect::<Vec<_>>()
    };
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    let lister = locker.clone();
    let list = tokio::spawn(async move { lister.admin().page(&Filter::default(), None, 100).await });
    until("a part of the list", async || scans().iter().any(|cursor| cursor != "0")).await;
    let begun = || scans().iter().filter(|cursor| *cursor == "0").count();
    let (begun_before, before) = (begun(), proxy.accepted());
    proxy.set(Fault::Reset);
    until("a new try", async || proxy.accepted() > before).await;
    proxy.set(Fault::None);
    assert_eq!(in_time("the list", list).await.unwrap().unwrap().keys.len(), 100);
    assert!(begun() > begun_before, "{:?}", scans());
}
