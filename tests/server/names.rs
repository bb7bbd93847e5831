//! Names that have become idle, and the list of names in the background, which the cap on names needs.

use crate::{
    stores::{Store, on_each_store},
    support::{Server, in_time, until},
};
use locker_harness::Fault;
use std::time::{Duration, Instant};

on_each_store!(names_of_expired_holds_are_not_in_use, server_deletes_idle_names_it_was_called_with);

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

/// A client of bouncer uses a name, deletes it and requires 204. The answer was 404, because the name was idle by then.
#[tokio::test]
async fn idle_names_are_deleted_once() {
    idle_names_of_one_server_are_deleted(&Server::start(&[])).await;
}

async fn server_deletes_idle_names_it_was_called_with(store: &Store) {
    let [one, two] = [store.server(&[]), store.server(&[])];
    assert_eq!(one.post("/v1/event/n/wait?maxwait=0").await.status, 408);
    assert_eq!(two.delete("/v1/event/n").await.status, 404, "the other server was not called with it");
    assert_eq!(one.delete("/v1/event/n").await.status, 204);
    idle_names_of_one_server_are_deleted(&one).await;
}

async fn idle_names_of_one_server_are_deleted(server: &Server) {
    const KEY: &str = "e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1";
    let by_key = format!("lock/by-key/{KEY}");
    let idle = [
        ("tokenbucket/n", &["acquire?interval=1"][..]),
        ("semaphore/n", &["acquire?key=k", "release?key=k"]),
        ("semaphore/expired", &["acquire?expires=1"]),
        ("event/n", &["wait?maxwait=0"]),
        ("lock/n", &["acquire?key=k", "release?key=k"]),
        (&by_key, &["acquire?key=k", "release?key=k"]),
        ("rwlock/n", &["acquire?mode=read&key=k", "release?key=k"]),
        ("leader/n", &["acquire?key=k", "release?key=k"]),
        ("barrier/n", &["wait?maxwait=0"]),
        ("latch/n", &["wait?maxwait=0"]),
    ];
    for (name, calls) in idle {
        let path = format!("/v1/{name}");
        assert_eq!(server.delete(&path).await.status, 404, "{name} was never used");
        for call in calls {
            assert!(matches!(server.post(&format!("{path}/{call}")).await.status, 200 | 204 | 408), "{name}");
        }
        until("the name is idle", async || server.get(&path).await.status == 404).await;
        assert_eq!(server.get(&format!("{path}/stats")).await.status, 200, "{name}");
        assert_eq!(server.delete(&path).await.status, 204, "{name}");
        assert_eq!(server.get(&format!("{path}/stats")).await.status, 404, "{name}");
        assert_eq!(server.delete(&path).await.status, 404, "{name} is deleted");
    }
    for call in ["semaphore/n/release?key=k", "semaphore/n/renew?key=k", "counter/n/value"] {
        server.get(&format!("/v1/{call}")).await;
    }
    for name in ["semaphore/n", "counter/n"] {
        assert_eq!(server.delete(&format!("/v1/{name}")).await.status, 404, "such a call uses no name");
    }
}
