//! Every row of the table of ambiguous failures that a network or a client can cause.

use crate::support::{
    GENEROUS, LEASE, builder, connect, eternal_keys, hold, holder, in_time, scripts_run, server_behind_proxy,
    until, waiting,
};
use locker::ErrorKind;
use locker_harness::{Fault, Proxy, RedisServer};
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Wake},
    time::{Duration, Instant},
};

#[tokio::test]
async fn acquire_is_repeated_with_the_same_id() {
    let (server, proxy, locker) = server_behind_proxy!();
    proxy.set(Fault::ExecuteAndReset);
    let guard = hold(&locker, "a").await;
    assert!(proxy.is_whole(), "the answer was lost");
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(guard.id()));
    let record: String = server.ask("GET", &["{lock:a}:f"]);
    assert_eq!(record, format!("{} {}", guard.fence(), guard.id()));
    guard.release().await.unwrap();
    assert_eq!(holder(&server, "lock:a"), None);
}

/// The request was carried out, and the caller timed out before the reply came.
#[tokio::test]
async fn abandoned_acquire_leaves_no_hold() {
    let (server, proxy, locker) = server_behind_proxy!();
    proxy.set(Fault::DropReplies);
    let request = locker.lock("a").timeout(Duration::from_millis(700));
    let acquire = tokio::spawn(async move { request.acquire().await.map(drop) });
    until("the request being carried out", async || holder(&server, "lock:a").is_some()).await;
    let error = in_time("the end of patience", acquire).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "{error}");
    proxy.set(Fault::None);
    until("the phantom being cancelled", async || holder(&server, "lock:a").is_none()).await;
    let tombstones: Vec<String> = server.ask("KEYS", &["{lock:a}:x:*"]);
    assert_eq!(tombstones.len(), 1);
    hold(&locker, "a").await.release().await.unwrap();
    assert_eq!(eternal_keys(&server), [""; 0]);
}

#[tokio::test]
async fn late_acquire_meets_its_tombstone() {
    let (server, proxy, locker) = server_behind_proxy!();
    proxy.set_for_open(Fault::HoldRequests);
    // The first copy hangs in the network; the second goes over a new connection.
    let guard = hold(&locker, "a").await;
    guard.release().await.unwrap();
    let before = scripts_run(&server);
    proxy.set(Fault::None);
    until("the late copy", async || scripts_run(&server) > before).await;
    assert_eq!(holder(&server, "lock:a"), None);
}

#[tokio::test]
async fn acquire_dropped_in_flight_holds_nothing() {
    let (server, proxy, locker) = server_behind_proxy!();
    proxy.set_for_open(Fault::HoldRequests);
    {
        let mut acquire = pin!(locker.lock("a").acquire());
        let first_look =
            std::future::poll_fn(|context| std::task::Poll::Ready(acquire.as_mut().poll(context)));
        assert!(first_look.await.is_pending());
    }
    until("the cancel over a new connection", async || {
        server.ask::<Vec<String>>("KEYS", &["{lock:a}:x:*"]).len() == 1
    })
    .await;
    let before = scripts_run(&server);
    proxy.set(Fault::None);
    until("the late acquire", async || scripts_run(&server) > before).await;
    assert_eq!((holder(&server, "lock:a"), waiting(&server, "lock:a")), (None, 0));
}

#[tokio::test]
async fn release_with_a_lost_reply_succeeds() {
    let (server, proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    proxy.set(Fault::ExecuteAndReset);
    guard.release().await.unwrap();
    assert!(proxy.is_whole(), "the answer was lost");
    assert_eq!(holder(&server, "lock:a"), None);
}

/// At its first try.
#[tokio::test]
async fn release_of_a_missing_hold_returns_lost() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let _: i64 = server.ask("DEL", &["lock:a"]);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// It returns `Unavailable` with an unknown outcome.
#[tokio::test]
async fn unanswered_release_continues_in_background() {
    let (server, proxy, locker) = server_behind_proxy!();
    let guard = locker.lock("a").lease(Duration::from_secs(2)).acquire().await.unwrap();
    proxy.set(Fault::HoldRequests);
    let error = in_time("an answer", guard.release()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false));
    proxy.set(Fault::None);
    until("the release", async || holder(&server, "lock:a").is_none()).await;
}

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

#[tokio::test]
async fn unrenewable_hold_is_lost_at_its_deadline() {
    let (_server, proxy, locker) = server_behind_proxy!();
    let guard = locker.lock("a").lease(Duration::from_secs(1)).acquire().await.unwrap();
    proxy.set(Fault::DropRequests);
    in_time("the loss", guard.lost()).await;
    assert!(!guard.is_held());
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    proxy.set(Fault::None);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn stolen_hold_is_lost_and_not_taken_back() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let _: String = server.ask("SET", &["lock:a", "somebody else", "PX", "60000"]);
    in_time("the loss", guard.lost()).await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(holder(&server, "lock:a").as_deref(), Some("somebody else"));
}

/// The place in line, the hold and the messages come back with the connection.
async fn survives(break_it: impl AsyncFn(&RedisServer, &Proxy)) {
    let (server, proxy, locker) = server_behind_proxy!();
    let other = connect(&server.url()).await;
    let guard = hold(&locker, "held by the broken one").await;
    let before = hold(&other, "a").await;
    let (first, second) = (locker.clone(), locker.clone());
    let first = tokio::spawn(async move { hold(&first, "a").await });
    until("the first in line", async || waiting(&server, "lock:a") == 1).await;
    let second = tokio::spawn(async move { hold(&second, "a").await });
    until("the second in line", async || waiting(&server, "lock:a") == 2).await;
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
async fn slow_network_only_adds_delay() {
    let (_server, proxy, locker) = server_behind_proxy!();
    proxy.set(Fault::Delay(Duration::from_millis(40)));
    let other = locker.clone();
    let guard = hold(&locker, "a").await;
    let waiter = tokio::spawn(async move { hold(&other, "a").await.release().await });
    guard.release().await.unwrap();
    in_time("the waiter", waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn server_without_scripts_gets_them_again() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let _: String = server.ask("SCRIPT", &["FLUSH"]);
    guard.release().await.unwrap();
    hold(&locker, "a").await.release().await.unwrap();
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
    until("all in line", async || waiting(&server, "lock:a") == 50).await;
    let clients = || server.ask::<String>("CLIENT", &["LIST"]);
    until("one connection of ours beside the one that asks", async || clients().lines().count() == 2).await;
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

#[tokio::test]
async fn try_acquire_recovers_after_an_outage() {
    let Some(mut server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).build().await.unwrap();
    server.kill();
    let error = in_time("an answer", locker.lock("a").try_acquire()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Unavailable, true));
    server.restart();
    let guard = hold(&locker, "a").await;
    assert!(guard.remaining() <= LEASE);
    guard.release().await.unwrap();
}

/// Renewals that no network could answer in time say nothing about the connection, which others use, too.
#[tokio::test]
async fn short_lease_does_not_break_the_connection() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::Delay(Duration::from_millis(100)));
    let locker = builder(&proxy.url()).command_timeout(GENEROUS).build().await.unwrap();
    let request = locker.lock("a").lease(Duration::from_millis(590));
    let guard = in_time("the lock", request.acquire()).await.unwrap();
    in_time("the loss", guard.lost()).await;
    hold(&locker, "another").await.release().await.unwrap();
    assert_eq!(proxy.accepted(), 1);
}

/// By the time that a grant is known, its lease is over.
#[tokio::test]
async fn try_acquire_tries_once_on_a_slow_network() {
    let (_server, proxy, locker) = server_behind_proxy!();
    proxy.set(Fault::Delay(Duration::from_millis(30)));
    let request = locker.lock("a").lease(Duration::from_millis(50));
    let tried = in_time("the end of the one try", request.try_acquire()).await;
    assert!(tried.map_or_else(|error| error.is_temporary(), |guard| guard.is_none()));
}

/// A wrong password refuses the connection over which a release would go.
#[tokio::test]
async fn release_is_made_once_the_login_works() {
    let Some(server) = RedisServer::start() else { return };
    let set = |password: &str| -> String {
        server.ask("ACL", &["SETUSER", "shop", "on", "resetpass", password, "~*", "&*", "+@all"])
    };
    set(">secret");
    let url = server.url().replace("redis://", "redis://shop:secret@");
    let locker = builder(&url).lease(Duration::from_secs(600)).build().await.unwrap();
    let (released, dropped) = (hold(&locker, "a").await, hold(&locker, "b").await);
    set(">other");
    let _: i64 = server.ask("CLIENT", &["KILL", "USER", "shop"]);
    until("the refusal", async || {
        locker
            .lock("c")
            .timeout(Duration::ZERO)
            .acquire()
            .await
            .is_err_and(|e| e.kind() == ErrorKind::Misused)
    })
    .await;
    assert_eq!(released.release().await.unwrap_err().kind(), ErrorKind::Misused);
    drop(dropped);
    set(">secret");
    for key in ["lock:a", "lock:b"] {
        until("the release", async || holder(&server, key).is_none()).await;
    }
}

/// A locker with a short timeout shares its connection with one that can wait for it.
#[tokio::test]
async fn short_timeout_does_not_block_reconnects() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let hasty = builder(&proxy.url()).timeout(Duration::from_millis(150)).build().await.unwrap();
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

#[tokio::test]
async fn timeout_during_an_outage_is_unavailable() {
    let Some(mut server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.lock("a").acquire().await.unwrap();
    let patience = Duration::from_secs(3);
    let waiter = tokio::spawn(locker.lock("a").timeout(patience).acquire());
    let event = locker.event("b");
    let told = tokio::spawn(async move { event.wait(patience).await });
    until("the waiters", async || waiting(&server, "lock:a") + waiting(&server, "event:b") == 2).await;
    server.kill();
    for error in [waiter.await.unwrap().unwrap_err(), told.await.unwrap().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    drop(guard);
}

/// Where somebody holds the lock who does not queue, those who wait ask again and again.
#[tokio::test]
async fn timeout_during_a_recheck_is_timed_out() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let locker = builder(&proxy.url()).command_timeout(GENEROUS).build().await.unwrap();
    let _: String = server.ask("SET", &["lock:a", "a stranger", "PX", "60000"]);
    let waiter = tokio::spawn(locker.lock("a").timeout(Duration::from_secs(2)).acquire());
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    proxy.set(Fault::HoldRequests);
    let error = in_time("the end of its patience", waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    proxy.set(Fault::None);
    until("its place being given up", async || waiting(&server, "lock:a") == 0).await;
}

/// A waiter is granted the lock and cannot confirm it: its timeout ends before the grant window does.
#[tokio::test]
async fn unconfirmed_grant_ends_at_the_timeout() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let guard = hold(&direct, "a").await;
    let (patience, started) = (Duration::from_millis(600), Instant::now());
    let waiter = tokio::spawn(behind.lock("a").timeout(patience).acquire());
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    proxy.set(Fault::HoldRequests);
    guard.release().await.unwrap();
    in_time("the end of its patience", waiter).await.unwrap().unwrap_err();
    // The grant window is 2 s.
    assert!(started.elapsed() < Duration::from_millis(1_800), "it took {:?}", started.elapsed());
    proxy.set(Fault::None);
    hold(&direct, "a").await.release().await.unwrap();
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("of a waker");
    }
}

/// The connection that the panic ends is replaced at once.
#[tokio::test]
async fn panicking_waker_costs_one_connection() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let listening = || server.ask::<String>("CLIENT", &["LIST", "TYPE", "pubsub"]);
    let first = listening();
    // Nothing else is sent that would find the connection broken.
    // An answer that is there at once wakes nobody.
    let waker = Arc::new(Panicking).into();
    let is_pending = |number: u32| {
        let mut acquire = Box::pin(locker.lock(&number.to_string()).acquire());
        let pending = acquire.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        pending.then_some(acquire)
    };
    let _acquire = (0..).find_map(is_pending);
    let id = |client: &str| client.split(' ').next().map(str::to_owned);
    until("another connection", async || !listening().is_empty() && id(&listening()) != id(&first)).await;
}
