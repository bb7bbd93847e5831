//! Outages of the server or of the network, and processes that are paused.

use crate::support::{GENEROUS, LEASE, builder, connect, hold, in_time, server_behind_proxy, until, waiting};
use futures_util::{FutureExt, TryFutureExt};
use locker::{ErrorKind, Locker, Quota};
use locker_harness::{Fault, Proxy, RedisServer, Signal};
use rustix::process::{Pid, kill_process};
use std::{
    future::Future,
    io::{BufRead, BufReader, Write},
    pin::pin,
    process::{Command, Stdio},
    task::Poll,
    time::{Duration, Instant},
};

#[tokio::test]
async fn try_acquire_recovers_after_an_outage() {
    let Some(mut server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).build().await.unwrap();
    server.kill();
    let error = in_time("a reply", locker.lock("a").try_acquire()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Unavailable, true));
    server.restart();
    let guard = hold(&locker, "a").await;
    assert!(guard.remaining() <= LEASE);
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
async fn timeout_during_an_outage_is_unavailable() {
    let Some(mut server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.lock("a").acquire().await.unwrap();
    let patience = Duration::from_secs(3);
    let waiter = tokio::spawn(locker.lock("a").timeout(patience).acquire());
    let event = locker.event("b");
    let wait = tokio::spawn(async move { event.wait(patience).await });
    until("the waiters", async || waiting(&server, "lock:a") + waiting(&server, "event:b") == 2).await;
    server.kill();
    for error in [waiter.await.unwrap().unwrap_err(), wait.await.unwrap().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    drop(guard);
}

/// The waiter rechecks again and again, because the holder is a client without a queue.
#[tokio::test]
async fn timeout_during_a_recheck_is_timed_out() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let locker = builder(&proxy.url()).command_timeout(GENEROUS).build().await.unwrap();
    let _: String = server.ask("SET", &["lock:a", "another client", "PX", "60000"]);
    let waiter = tokio::spawn(locker.lock("a").timeout(Duration::from_secs(2)).acquire());
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    proxy.set(Fault::Delay(Duration::from_millis(300)));
    let error = in_time("the time-out", waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    proxy.set(Fault::None);
    until("an empty queue", async || waiting(&server, "lock:a") == 0).await;
}

/// No command had been unanswered when the timeouts ended: only the cancel shows that the server is frozen.
#[tokio::test]
async fn timeout_at_a_frozen_server_is_unavailable() {
    let Some(server) = RedisServer::start() else { return };
    let patience = Duration::from_secs(2);
    let locker = Locker::builder().url(server.url()).timeout(patience).build().await.unwrap();
    let guards = [
        hold(&locker, "a").await,
        locker.semaphore("a", 1).acquire().await.unwrap(),
        locker.read_lock("a").acquire().await.unwrap(),
    ];
    let limiter = |name, size| {
        let quota = Quota::token_bucket(size, Duration::from_secs(3600));
        locker.rate_limiter(name, quota).timeout(patience).wait_past_timeout(true)
    };
    limiter("a", 1).acquire().await.unwrap();
    let waiters = {
        let (locker, parked, reserved) = (locker.clone(), limiter("b", 0), limiter("a", 1));
        let started = async move {
            let permits = locker.keyed_semaphore("a", 1);
            let (event, watchdog) = (locker.event("a"), locker.watchdog("a"));
            let (barrier, latch) = (locker.barrier("a", 2), locker.latch("a", 1));
            tokio::join!(
                locker.lock("a").acquire().map_ok(drop),
                locker.semaphore("a", 1).acquire().map_ok(drop),
                locker.write_lock("a").acquire().map_ok(drop),
                permits.acquire("holder", Duration::MAX, patience).map_ok(drop),
                event.wait(patience).map_ok(drop),
                watchdog.wait(patience),
                barrier.wait(patience),
                latch.wait(patience),
                parked.acquire().map_ok(drop),
                reserved.acquire().map_ok(drop),
            )
        };
        tokio::spawn(started.map(|all| -> [_; 10] { all.into() }))
    };
    let queued = || -> usize {
        let kinds = ["lock", "semaphore", "rwlock", "event", "watchdog", "barrier", "latch", "rate"];
        kinds.iter().map(|kind| waiting(&server, &format!("{kind}:a"))).sum::<usize>()
            + waiting(&server, "rate:b")
    };
    until("all waiters", async || queued() == 10).await;
    server.signal(Signal::STOP);
    for (kind, result) in in_time("the errors", waiters).await.unwrap().into_iter().enumerate() {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false), "{kind}: {error}");
    }
    server.signal(Signal::CONT);
    until("empty queues", async || queued() == 0).await;
    drop(guards);
    in_time("the end of the background work", locker.settled()).await;
    for name in ["lock:a", "semaphore:a", "rwlock:a"] {
        let (kind, name) = name.split_once(':').unwrap();
        let key = locker.admin().key(kind, name);
        let holders = locker.admin().inspect(&key).await.unwrap().map_or(0, |state| state.holders.len());
        assert_eq!(holders, 0, "{kind}");
    }
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
    in_time("the time-out", waiter).await.unwrap().unwrap_err();
    // The grant window is 2 s.
    assert!(started.elapsed() < Duration::from_millis(1_800), "it took {:?}", started.elapsed());
    proxy.set(Fault::None);
    hold(&direct, "a").await.release().await.unwrap();
}

/// As in `select!`, when another branch is at work while the reply to a release is lost.
#[tokio::test]
async fn unpolled_release_is_sent_in_background() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let guard = ours.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    let mut release = pin!(guard.release());
    let look = std::future::poll_fn(|context| Poll::Ready(release.as_mut().poll(context)));
    assert!(look.await.is_pending());
    hold(&theirs, "a").await.release().await.unwrap();
    in_time("the release", release).await.unwrap();
}

/// Nothing of the first release was sent. The release that the background sends is therefore no repetition.
#[tokio::test]
async fn release_after_an_outage_returns_lost() {
    let Some(mut server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).lease(GENEROUS * 4).command_timeout(GENEROUS).build().await.unwrap();
    let guard = hold(&locker, "a").await;
    server.kill();
    let is_away = async || {
        let error = locker.lock("b").timeout(Duration::ZERO).acquire().await.unwrap_err();
        // The outcome of a request on a connection that breaks is unknown.
        error.is_certain()
    };
    until("the loss of the connection", is_away).await;
    let mut release = pin!(guard.release());
    for _ in 0..3 {
        assert!(is_away().await);
        assert!(release.as_mut().now_or_never().is_none());
    }
    server.restart();
    assert_eq!(in_time("the release", release).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn server_paused_beyond_the_lease_loses_holds() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(1)).acquire().await.unwrap();
    server.signal(Signal::STOP);
    in_time("the loss", guard.lost()).await;
    assert!(!guard.is_held());
    server.signal(Signal::CONT);
    let next = hold(&locker, "a").await;
    assert!(next.fence() > guard.fence());
    next.release().await.unwrap();
}

/// A holder that is paused beyond its lease (a long pause, a suspended machine) learns of its loss when it continues.
#[tokio::test]
async fn client_paused_beyond_its_lease_loses_holds() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "outages::paused_process", "--nocapture"])
        .env("LOCKER_TEST_SLEEPER", server.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.ends_with("held: true")));
    kill_process(pid, Signal::STOP).unwrap();
    let next = hold(&locker, "a").await;
    kill_process(pid, Signal::CONT).unwrap();
    writeln!(child.stdin.take().unwrap(), "go on").unwrap();
    assert!(said.any(|line| line == "check: Lost, release: Lost"));
    assert!(child.wait().unwrap().success());
    assert!(next.is_held());
    next.release().await.unwrap();
}

/// The child process of the test above.
#[test]
fn paused_process() {
    let Ok(url) = std::env::var("LOCKER_TEST_SLEEPER") else { return };
    let locker = Locker::connect_blocking(&url).unwrap();
    let guard = locker.lock("a").lease(Duration::from_secs(1)).acquire_blocking().unwrap();
    println!("held: {}", guard.is_held());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let check = guard.check().unwrap_err().kind();
    println!("check: {check:?}, release: {:?}", guard.release_blocking().unwrap_err().kind());
}
