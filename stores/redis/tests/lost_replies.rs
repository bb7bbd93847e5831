//! Replies that do not arrive: a request is repeated and takes effect once.

use crate::support::{
    MINUTE, connect, eternal_keys, hold, holder, in_time, refused_ids, server_behind_proxy, until,
};
use locker::ErrorKind;
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::Duration;

#[tokio::test]
async fn acquire_is_repeated_with_the_same_id() {
    let (server, proxy, locker) = server_behind_proxy!();
    proxy.set(Fault::ExecuteAndReset);
    let guard = hold(&locker, "a").await;
    assert!(proxy.is_whole(), "the reply was lost");
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(guard.id()));
    assert_eq!(server.ask::<String>("GET", &["lock:a"]), format!("{} {}", guard.id(), guard.fence()));
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
    let error = in_time("the time-out", acquire).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "{error}");
    proxy.set(Fault::None);
    until("the phantom being cancelled", async || holder(&server, "lock:a").is_none()).await;
    assert_eq!(refused_ids(&server, "lock:a"), 1);
    hold(&locker, "a").await.release().await.unwrap();
    assert_eq!(eternal_keys(&server), [""; 0]);
}

/// The same for a hold without expiry, which no client would release: its caller times out or is dropped.
#[tokio::test]
async fn abandoned_endless_acquire_is_cancelled() {
    let (server, proxy, locker) = server_behind_proxy!();
    let direct = connect(&server.url()).await;
    for (patience, dropped) in [(Duration::from_millis(700), false), (MINUTE, true)] {
        let acquire = locker.keyed_semaphore("a", 1).acquire("lost", Duration::MAX, patience);
        proxy.set(Fault::DropReplies);
        let call = tokio::spawn(acquire);
        until("the hold", async || server.ask::<i64>("ZCARD", &["{semaphore:a}:a"]) == 1).await;
        if dropped {
            call.abort();
        } else {
            in_time("the time-out", call).await.unwrap().unwrap_err();
        }
        proxy.set(Fault::None);
        let next = direct.keyed_semaphore("a", 1).acquire("next", MINUTE, MINUTE);
        in_time("the permit", next).await.unwrap();
        assert!(direct.keyed_semaphore("a", 1).release("next").await.unwrap());
        in_time("the end of the calls", locker.settled()).await;
    }
}

#[tokio::test]
async fn release_with_a_lost_reply_succeeds() {
    let (server, proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    proxy.set(Fault::ExecuteAndReset);
    guard.release().await.unwrap();
    assert!(proxy.is_whole(), "the reply was lost");
    assert_eq!(holder(&server, "lock:a"), None);
}

/// It returns `Unavailable` with an unknown outcome.
#[tokio::test]
async fn unanswered_release_continues_in_background() {
    let (server, proxy, locker) = server_behind_proxy!();
    let guard = locker.lock("a").lease(Duration::from_secs(2)).acquire().await.unwrap();
    proxy.set(Fault::HoldRequests);
    let error = in_time("a reply", guard.release()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false));
    proxy.set(Fault::None);
    until("the release", async || holder(&server, "lock:a").is_none()).await;
}

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
    assert_eq!(in_time("the reply", adding).await.unwrap().unwrap(), 1);
    assert_eq!(direct.counter("a").get().await.unwrap(), 2);
}
