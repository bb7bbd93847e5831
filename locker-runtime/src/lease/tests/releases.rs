//! Releases that go wrong, or that another copy of them ends first.

use super::{ends, is_free, remote};
use crate::{lease::Guard, locker::Locker};
use futures_util::FutureExt;
use locker_core::{
    error::ErrorKind,
    key::Key,
    primitives::{HoldRequest, Request},
};
use locker_harness::{ScriptedStore, Step, in_time, is_release, until};
use std::{future::ready, time::Duration};
use tokio::sync::oneshot;

/// Short: the renewing task repeats a release after it.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Returns a guard, and a sender that lets the first release reach the store. The renewing task does not wait for that.
async fn slow_to_release(store: &ScriptedStore, locker: &Locker) -> (Guard, oneshot::Sender<()>) {
    let (tell, told) = oneshot::channel();
    let mut told = Some(told);
    store.on_call(move |request| match told.take_if(|_| is_release(request)) {
        Some(told) => Step::Delay(Box::pin(async { drop(told.await) }), Box::pin(ready(()))),
        None => Step::CarryOut,
    });
    (locker.lock("a").lease(Duration::from_secs(60)).acquire().await.unwrap(), tell)
}

/// A release in a `select!` is not polled while another branch runs.
#[tokio::test]
async fn unpolled_release_is_done_by_the_renewing_task() {
    let (store, locker) = remote(TIMEOUT);
    let (guard, tell) = slow_to_release(&store, &locker).await;
    let mut release = Box::pin(guard.release());
    assert!(release.as_mut().now_or_never().is_none());
    until("another release", async || store.count(is_release) > 1).await;
    locker.settled().await;
    assert!(is_free(&Locker::with_defaults(store.memory().clone()), "a"));
    tell.send(()).unwrap();
    in_time("the first release", release).await.expect("the other one ended the same hold");
}

/// Neither of the releases has ended it.
#[tokio::test]
async fn hold_that_two_releases_find_gone_is_lost() {
    let (store, locker) = remote(TIMEOUT);
    let (guard, tell) = slow_to_release(&store, &locker).await;
    let evicting = Locker::with_defaults(store.memory().clone());
    assert!(evicting.admin().evict(&evicting.admin().key("lock", "a")).await.unwrap());
    let mut release = Box::pin(guard.release());
    assert!(release.as_mut().now_or_never().is_none());
    until("another release", async || store.count(is_release) > 1).await;
    locker.settled().await;
    tell.send(()).unwrap();
    assert_eq!(in_time("the first release", release).await.unwrap_err().kind(), ErrorKind::Lost);
}

/// The release waits for the store, as it does without `min_hold`.
#[tokio::test]
async fn min_hold_that_is_over_keeps_nothing() {
    let (store, locker) = remote(TIMEOUT);
    let min_hold = Duration::from_millis(20);
    let guard = locker.lock("a").lease(Duration::from_secs(60)).min_hold(min_hold).acquire().await.unwrap();
    // Under test: `min_hold` is over.
    tokio::time::sleep(2 * min_hold).await;
    let (tell, told) = oneshot::channel::<()>();
    let mut told = Some(told);
    store.on_call(move |_| match told.take() {
        Some(told) => Step::Delay(Box::pin(ready(())), Box::pin(async { drop(told.await) })),
        None => Step::CarryOut,
    });
    let mut release = Box::pin(guard.release());
    assert!(release.as_mut().now_or_never().is_none());
    tell.send(()).unwrap();
    release.await.unwrap();
    let asked = ends(&store);
    assert!(matches!(asked[..], [Request::Lock(HoldRequest::Release { .. })]), "{asked:?}");
}

/// A release that comes late must find it held.
#[tokio::test]
async fn lease_hardly_longer_than_min_hold_is_renewed() {
    for (lease, renewals) in [(64, 1), (80, 0)] {
        let (store, locker) = remote(TIMEOUT);
        let request = locker.lock("a").lease(Duration::from_secs(lease)).min_hold(Duration::from_secs(60));
        request.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(ends(&store).len(), renewals, "a lease of {lease} s");
    }
}

/// Nothing is left to release when its `min_hold` is over.
#[tokio::test]
async fn kept_hold_that_is_gone_is_not_released() {
    let (store, locker) = remote(TIMEOUT);
    let kept = |name, milliseconds| {
        let min_hold = Duration::from_millis(milliseconds);
        locker.lock(name).lease(Duration::from_secs(3)).min_hold(min_hold).acquire()
    };
    let (gone, later) = (kept("gone", 3_200).await.unwrap(), kept("later", 3_300).await.unwrap());
    let evicting = Locker::with_defaults(store.memory().clone());
    assert!(evicting.admin().evict(&evicting.admin().key("lock", "gone")).await.unwrap());
    assert_eq!(gone.release().await.unwrap_err().kind(), ErrorKind::Lost);
    later.release().await.unwrap();
    until("the release of the other", async || is_free(&evicting, "later")).await;
    let released = |(key, request): &(Key, Request)| is_release(request).then(|| key.to_string());
    assert_eq!(store.requests().iter().filter_map(released).collect::<Vec<_>>(), ["lock:later"]);
}
