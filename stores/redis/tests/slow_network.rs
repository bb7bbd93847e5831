//! Round trips that take longer than timeouts and leases.

use crate::support::{GENEROUS, builder, connect, hold, in_time, server_behind_proxy, until};
use locker::Locker;
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::{Duration, Instant};

#[tokio::test]
async fn slow_network_only_adds_delay() {
    let (_server, proxy, locker) = server_behind_proxy!();
    proxy.set(Fault::Delay(Duration::from_millis(40)));
    let other = locker.clone();
    let guard = hold(&locker, "a").await;
    let waiter = tokio::spawn(async move { hold(&other, "a").await.release().await });
    guard.release().await.unwrap();
    in_time("the waiter", waiter).await.unwrap().unwrap();
}

/// A later connection had less time than the first one, and the checks needed a round trip each: across 600 ms a
/// process connected once and never again.
#[tokio::test]
async fn slow_link_connects_again_after_a_cut() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::Delay(Duration::from_millis(300)));
    let locker = Locker::builder().url(proxy.url()).timeout(GENEROUS).build().await.unwrap();
    hold(&locker, "a").await.release().await.unwrap();
    let before = proxy.accepted();
    assert_eq!(server.ask::<i64>("CLIENT", &["KILL", "TYPE", "pubsub"]), 1);
    until("another connection", async || proxy.accepted() > before).await;
    hold(&locker, "a").await.release().await.unwrap();
}

/// Renewals that no network could answer in time say nothing about the connection, which other calls use as well.
#[tokio::test]
async fn short_lease_does_not_break_the_connection() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    // A round trip is longer than a third of the lease. On a busy machine one may take more than half of it: then the
    // grant comes too late.
    proxy.set(Fault::Delay(Duration::from_millis(100)));
    let locker = builder(&proxy.url()).command_timeout(GENEROUS).build().await.unwrap();
    hold(&locker, "before").await.release().await.unwrap();
    let mut guard = None;
    until("a grant in time", async || {
        let request = locker.lock(&format!("{:?}", Instant::now())).lease(Duration::from_millis(590));
        guard = request.timeout(Duration::from_secs(1)).acquire().await.ok();
        guard.is_some()
    })
    .await;
    let guard = guard.expect("the lock");
    in_time("the loss", guard.lost()).await;
    hold(&locker, "another").await.release().await.unwrap();
    assert_eq!(proxy.accepted(), 1);
}

/// The lease is over when the reply with the grant arrives.
#[tokio::test]
async fn try_acquire_tries_once_on_a_slow_network() {
    let (_server, proxy, locker) = server_behind_proxy!();
    proxy.set(Fault::Delay(Duration::from_millis(30)));
    let request = locker.lock("a").lease(Duration::from_millis(50));
    let tried = in_time("the end of the try", request.try_acquire()).await;
    assert!(tried.map_or_else(|error| error.is_temporary(), |guard| guard.is_none()));
}

/// A locker with a short timeout shares its connection with one that can wait for it.
#[tokio::test]
async fn short_timeout_does_not_block_reconnects() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let mut hasty = None;
    until("a connection in time", async || {
        hasty = builder(&proxy.url()).timeout(Duration::from_millis(150)).build().await.ok();
        hasty.is_some()
    })
    .await;
    let patient = connect(&proxy.url()).await;
    // Connecting takes several round trips.
    proxy.set(Fault::Delay(Duration::from_millis(40)));
    for _ in 0..3 {
        let before = proxy.accepted();
        let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "pubsub"]);
        until("another connection", async || proxy.accepted() > before).await;
        hold(&patient, "a").await.release().await.unwrap();
    }
    drop(hasty);
}
