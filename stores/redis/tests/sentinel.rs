//! Sentinel: finding the master, and failovers.

use crate::support::{GENEROUS, builder, connect, hold, in_time, until};
use locker::{ErrorKind, Guard, Locker};
use locker_harness::{Fault, Proxy, RedisServer, SentinelSetup, free_port};
use std::time::{Duration, Instant};

/// Returns whether the server has this hold of the lock `a`.
fn has(server: &RedisServer, guard: &Guard) -> bool {
    crate::support::holder(server, "lock:a").as_deref() == Some(guard.id())
}

/// Locks `a` at this server. For a moment after a failover, a grant may still come from the former master.
async fn hold_at(server: &RedisServer, locker: &Locker) -> Guard {
    let mut held = None;
    until("a grant of the new master", async || {
        let guard = hold(locker, "a").await;
        if has(server, &guard) {
            held = Some(guard);
        } else {
            // The former master may have forgotten it.
            drop(guard.release().await);
        }
        held.is_some()
    })
    .await;
    held.expect("the grant")
}

async fn refused(url: &str) -> locker::Error {
    Locker::builder().url(url).timeout(Duration::from_secs(3)).build().await.expect_err(url)
}

#[tokio::test]
async fn locks_are_at_the_master_that_sentinels_name() {
    let Some(setup) = SentinelSetup::start() else { return };
    let locker = connect(&setup.url()).await;
    let guard = hold(&locker, "a").await;
    assert!(has(&setup.servers()[0], &guard));
    let shown = format!("{locker:?}");
    assert!(shown.contains("Redis(redis+sentinel://127.0.0.1:") && shown.contains("/main?db=0)"), "{shown}");
    guard.release().await.unwrap();

    // One of three sentinels is enough, wherever it is in the list.
    let (dead, alive) = (free_port(), setup.sentinels()[2].port());
    let started = Instant::now();
    let url = setup.url_through(&[dead, dead, alive]);
    hold(&connect(&url).await, "a").await.release().await.unwrap();
    assert!(started.elapsed() < GENEROUS, "{:?}", started.elapsed());

    let error = refused(&url.replace("/main", "/other")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "the dead ones may know it: {error}");
    let error = refused(&setup.url().replace("/main", "/other")).await;
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Misused, false), "{error}");
    assert!(error.to_string().contains("`other`") && error.to_string().contains("does not know"), "{error}");

    let error = refused(&setup.url_through(&[dead])).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("does not answer"), "{error}");
    let error = refused(&setup.url_through(&[setup.servers()[0].port()])).await;
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(error.to_string().contains("is not a sentinel"), "{error}");
}

/// The replicas have the hold: it is renewed at the new master, and waiters continue there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicated_holds_and_waiters_survive_a_failover() {
    let Some(setup) = SentinelSetup::start() else { return };
    let locker = connect(&setup.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(60)).acquire().await.unwrap();
    let waiter = crate::support::queue(&setup.servers()[0], &locker).await;
    let replicas = &setup.servers()[1..];
    until("the hold at the replicas", async || replicas.iter().all(|replica| has(replica, &guard))).await;
    let new = &setup.servers()[setup.fail_over()];
    until("a grant of the new master", async || {
        let fresh = hold(&locker, "b").await;
        let is_there = crate::support::holder(new, "lock:b").as_deref() == Some(fresh.id());
        drop(fresh.release().await);
        is_there
    })
    .await;
    assert!(guard.is_held() && has(new, &guard));
    guard.release().await.unwrap();
    let next = in_time("the waiter", waiter).await.unwrap();
    assert!(has(new, &next));
    next.release().await.unwrap();
}

/// The grant never reached a replica. The new master grants the lock to another caller, and the former holder is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_that_no_replica_has_is_lost_with_the_master() {
    let Some(mut setup) = SentinelSetup::start() else { return };
    let (ours, theirs) = (connect(&setup.url()).await, connect(&setup.url()).await);
    setup.cut_replication(0);
    let guard = ours.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
    setup.kill(0);
    let next = hold(&theirs, "a").await;
    in_time("the loss", guard.lost()).await;
    assert!(!guard.is_held() && next.is_held());
    assert!(next.fence() > guard.fence(), "{} after {}", next.fence(), guard.fence());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let new = setup.successor(0);
    assert!(has(&setup.servers()[new], &next));

    // The old master comes back, as a master at first. Nobody takes its word.
    setup.restart(0);
    for locker in [&theirs, &connect(&setup.url()).await] {
        assert!(locker.lock("a").try_acquire().await.unwrap().is_none());
    }
    setup.demote(0, new);
    assert!(connect(&setup.url()).await.lock("a").try_acquire().await.unwrap().is_none());
    assert!(next.is_held() && has(&setup.servers()[new], &next));
    next.release().await.unwrap();
}

/// Returns a server without replicas, its only sentinel, and the URL.
fn server_with_sentinel() -> Option<(RedisServer, RedisServer, String)> {
    let server = RedisServer::start()?;
    let sentinel = RedisServer::sentinel(&format!("sentinel monitor main 127.0.0.1 {} 1", server.port()))?;
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    Some((server, sentinel, url))
}

/// The sentinel cannot tell of another master, there is no call, and nobody cuts the connection.
#[tokio::test]
async fn demoted_master_is_left_without_a_message() {
    let Some((server, _sentinel, url)) = server_with_sentinel() else { return };
    let locker = connect(&url).await;
    let channels = || server.ask::<Vec<String>>("PUBSUB", &["CHANNELS", "locker:push:*"]).len();
    assert_eq!(channels(), 1);
    let _: String = server.ask("REPLICAOF", &["127.0.0.1", "1"]);
    until("the end of the connection", async || channels() == 0).await;
    let _: String = server.ask("REPLICAOF", &["NO", "ONE"]);
    hold(&locker, "a").await.release().await.unwrap();
    assert_eq!(channels(), 1);
}

/// One of three sentinels is silent, and another one is stopped during the failover: it names the former master when it
/// continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_sentinel_that_knows_is_enough() {
    let Some(mut setup) = SentinelSetup::start() else { return };
    let silent = Proxy::to(setup.sentinels()[2].port());
    let ports = [setup.sentinels()[1].port(), silent.port(), setup.sentinels()[0].port()];
    let locker = connect(&setup.url_through(&ports)).await;
    hold(&locker, "a").await.release().await.unwrap();
    silent.set(Fault::HoldRequests);
    setup.stop_sentinel(1);
    let new = setup.fail_over();
    hold_at(&setup.servers()[new], &locker).await.release().await.unwrap();
    setup.continue_sentinel(1);
    let late = connect(&setup.url_through(&ports)).await;
    hold_at(&setup.servers()[new], &late).await.release().await.unwrap();
    hold_at(&setup.servers()[new], &locker).await.release().await.unwrap();
}

#[tokio::test]
async fn locks_go_on_without_any_sentinel() {
    let Some(mut setup) = SentinelSetup::start() else { return };
    let locker = connect(&setup.url()).await;
    let guard = hold(&locker, "a").await;
    for sentinel in 0..3 {
        setup.kill_sentinel(sentinel);
    }
    let renewed = async || setup.servers()[0].ask::<i64>("PTTL", &["lock:a"]) > 5_000;
    until("a lease that runs", async || !renewed().await).await;
    until("a renewal", renewed).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    hold(&locker, "a").await.release().await.unwrap();
}

#[tokio::test]
async fn sentinels_and_servers_have_their_own_logins() {
    let arguments = ["--requirepass", "p@ss", "--masterauth", "p@ss"];
    let lines = "sentinel auth-pass main p@ss\nrequirepass sesame";
    let Some(mut server) = RedisServer::with(&arguments) else { return };
    let Some(sentinel) =
        RedisServer::sentinel(&format!("sentinel monitor main 127.0.0.1 {} 1\n{lines}", server.port()))
    else {
        return;
    };
    let url = |login: &str, parameters: &str| {
        format!("redis+sentinel://{login}127.0.0.1:{}/main?{parameters}", sentinel.port())
    };
    let locker = connect(&url(":p%40ss@", "db=3&sentinel_password=sesame")).await;
    hold(&locker, "a").await.release().await.unwrap();
    connect(&url("default:p%40ss@", "sentinel_user=default&sentinel_password=sesame")).await;
    for (login, parameters, reason) in [
        (":p%40ss@", "db=0", "sentinel_password"),
        (":p%40ss@", "sentinel_password=secret", "sentinel_password"),
        (":secret@", "sentinel_password=sesame", "WRONGPASS"),
        ("", "sentinel_password=sesame", "NOAUTH"),
    ] {
        let error = refused(&url(login, parameters)).await;
        assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Misused, false), "{login}: {error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(reason), "{text}");
        assert!(!["secret", "sesame", "p@ss", "p%40ss"].iter().any(|word| text.contains(word)), "{text}");
    }
    server.kill();
    let error = refused(&url(":p%40ss@", "sentinel_password=sesame")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("master `main`"), "{error}");
}

/// A replica that the sentinels name is asked for nothing: for a moment they may be wrong.
#[tokio::test]
async fn replica_that_sentinels_name_is_refused() {
    let Some((server, _sentinel, url)) = server_with_sentinel() else { return };
    let _: String = server.ask("REPLICAOF", &["127.0.0.1", "1"]);
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("replica"), "{error}");
    let locker = tokio::spawn(async move { builder(&url).build().await });
    let _: String = server.ask("REPLICAOF", &["NO", "ONE"]);
    in_time("the connection", locker).await.unwrap().unwrap();
}

#[tokio::test]
async fn every_start_up_check_runs_on_the_new_master() {
    let Some(setup) = SentinelSetup::start() else { return };
    let locker = connect(&setup.url()).await;
    hold(&locker, "a").await.release().await.unwrap();
    for replica in &setup.servers()[1..] {
        let _: String = replica.ask("CONFIG", &["SET", "maxmemory-policy", "allkeys-lru"]);
    }
    let master = setup.fail_over();
    until("the refusal", async || {
        locker.lock("a").try_acquire().await.is_err_and(|error| error.message().contains("allkeys-lru"))
    })
    .await;
    let _: String = setup.servers()[master].ask("CONFIG", &["SET", "maxmemory-policy", "noeviction"]);
    until("the new master", async || locker.lock("a").try_acquire().await.is_ok()).await;
    let scripts: String = setup.servers()[master].ask("INFO", &["memory"]);
    assert!(!scripts.contains("number_of_cached_scripts:0"), "{scripts}");
}

/// Only a higher number moved a process. When the sentinels had lost their state, running processes stayed at the
/// former master for good, and new ones used the next: two callers held, for as long as both servers lived.
#[tokio::test]
async fn sentinels_that_count_anew_are_followed() {
    let (Some(former), Some(next)) = (RedisServer::start(), RedisServer::start()) else { return };
    let lines = format!("sentinel monitor main 127.0.0.1 {} 1\nsentinel config-epoch main 7", former.port());
    let sentinels = (0..3).map(|_| RedisServer::sentinel(&lines)).collect::<Option<Vec<_>>>();
    let Some(mut sentinels) = sentinels else { return };
    let places: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    let locker = connect(&format!("redis+sentinel://{}/main", places.join(","))).await;
    let guard = hold(&locker, "a").await;
    assert!(has(&former, &guard));
    // The third one would tell its number to every process that asks.
    sentinels[2].kill();
    for sentinel in &sentinels[..2] {
        let _: String = sentinel.ask("SENTINEL", &["REMOVE", "main"]);
        let _: String =
            sentinel.ask("SENTINEL", &["MONITOR", "main", "127.0.0.1", &next.port().to_string(), "1"]);
    }
    in_time("the loss at the next master", guard.lost()).await;
    let again = hold(&locker, "a").await;
    assert!(has(&next, &again));
}
