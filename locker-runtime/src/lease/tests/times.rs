//! When holds are renewed, and which.

use super::remote;
use crate::locker::Locker;
use futures_util::FutureExt;
use locker_core::{
    error::{Error, ErrorKind},
    renewals,
};
use locker_harness::{ScriptedStore, Step, is_release, is_renewal, until};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

/// Longer than any of these tests.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Makes the renewing task look at all holds, and waits until it has renewed those of a store.
async fn renew_all(store: &ScriptedStore, locker: &Locker) {
    let before = store.count(is_renewal);
    renewals::renew_all(locker.store());
    until("a renewal", async || store.count(is_renewal) > before).await;
    locker.settled().await;
}

#[tokio::test]
async fn hold_without_renewal_is_never_renewed() {
    let (store, locker) = remote(TIMEOUT);
    let _fixed = locker.lock("fixed").lease(LONG).renew(false).acquire().await.unwrap();
    let _renewed = locker.lock("renewed").lease(LONG).acquire().await.unwrap();
    renew_all(&store, &locker).await;
    let keys: Vec<_> = store.requests().into_iter().filter(|(_, request)| is_renewal(request)).collect();
    assert!(keys.iter().all(|(key, _)| key.as_str() == "lock:renewed"), "{keys:?}");
}

#[tokio::test]
async fn other_holds_are_renewed_at_their_time() {
    let (store, locker) = remote(TIMEOUT);
    let _guard = locker.lock("a").lease(LONG).acquire().await.unwrap();
    let (other_store, other) = remote(TIMEOUT);
    let _other = other.lock("b").lease(LONG).acquire().await.unwrap();
    renew_all(&other_store, &other).await;
    locker.settled().await;
    assert_eq!(store.count(is_renewal), 0);
}

/// The owner has time for its release.
#[tokio::test]
async fn release_under_way_is_not_sent_again_early() {
    let (store, locker) = remote(TIMEOUT);
    let guard = locker.lock("a").lease(LONG).acquire().await.unwrap();
    store.on_call(|request| if is_release(request) { Step::Hang } else { Step::CarryOut });
    let mut release = Box::pin(guard.release());
    assert!(release.as_mut().now_or_never().is_none());
    let _other = locker.lock("b").lease(LONG).acquire().await.unwrap();
    renew_all(&store, &locker).await;
    assert_eq!(store.count(is_release), 1);
}

/// Each attempt waits for a twelfth of the lease.
#[tokio::test]
async fn failed_renewals_are_not_repeated_at_once() {
    let (store, locker) = remote(TIMEOUT);
    let guard = locker.lock("a").lease(Duration::from_millis(1_200)).acquire().await.unwrap();
    store.fail(is_renewal, Error::new(ErrorKind::Unavailable, "the link is cut"));
    guard.lost().await;
    let attempts = store.count(is_renewal);
    assert!((1..=12).contains(&attempts), "{attempts}");
}

/// After 30 to 37 percent of their leases.
#[tokio::test]
async fn holds_that_began_together_are_renewed_apart() {
    let locker = Locker::memory();
    let mut least = 1.0_f64;
    let mut most = 0.0_f64;
    for number in 0..200 {
        let guard = locker.lock(&number.to_string()).lease(LONG).acquire().await.unwrap();
        let hold = guard.hold();
        let part = (hold.renew_at().since(hold.deadline() - LONG)).as_secs_f64() / LONG.as_secs_f64();
        (least, most) = (least.min(part), most.max(part));
        guard.release().await.unwrap();
    }
    assert!((0.299..0.31).contains(&least) && (0.357..0.368).contains(&most), "{least} to {most}");
}
