//! The list of names in the background, which the cap on names needs.

use crate::{
    stores::{Store, on_each_store},
    support::{in_time, until},
};
use locker_harness::Fault;
use std::time::{Duration, Instant};

on_each_store!(names_of_expired_holds_are_not_in_use);

#[tokio::test]
async fn cap_on_names_waits_for_no_postgres() {
    let Some(store) = Store::postgres() else { return };
    cap_on_names_waits_for_no_store(&store).await;
}

#[tokio::test]
async fn cap_on_names_waits_for_no_redis() {
    let Some(store) = Store::redis() else { return };
    cap_on_names_waits_for_no_store(&store).await;
}

/// The names are listed in the background: while the store does not reply, calls of new names are refused in time.
async fn cap_on_names_waits_for_no_store(store: &Store) {
    let (network, far) = store.far();
    let server = far.server(&["--max-names", "2"]);
    for name in ["a", "b"] {
        assert_eq!(server.post(&format!("/v1/semaphore/{name}/acquire?key=k")).await.status, 200);
    }
    network.set(Fault::HoldRequests);
    let refused_after = async |call: &str| {
        let started = Instant::now();
        let refused = in_time("the refusal", server.post(&format!("/v1/{call}"))).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{call}");
        started.elapsed()
    };
    // A listing that gets no reply runs as soon as the previous one is some time ago.
    until("a call waits for a listing", async || {
        refused_after("semaphore/c/acquire").await >= Duration::from_millis(990)
    })
    .await;
    assert!(refused_after("semaphore/c/acquire?maxwait=0").await < Duration::from_millis(990));
    for call in ["event/c/send", "semaphore/c/acquire?maxwait=60000", "semaphore/c/acquire?maxwait=100"] {
        let took = refused_after(call).await;
        assert!(took < Duration::from_secs(3), "{call} took {took:?}");
    }
    network.set(Fault::None);
    assert_eq!(server.post("/v1/semaphore/a/release?key=k").await.status, 204);
    until("a name has become free", async || server.post("/v1/event/c/send").await.status == 204).await;
}

/// The store remembers such names for another minute.
async fn names_of_expired_holds_are_not_in_use(store: &Store) {
    let server = store.server(&["--max-names", "1"]);
    assert_eq!(server.post("/v1/semaphore/s/acquire?expires=50").await.status, 200);
    until("another name may be used", async || {
        server.post("/v1/semaphore/t/acquire?expires=50").await.status == 200
    })
    .await;
    until("no name is in use", async || server.get("/v1").await.body == "[]").await;
}
