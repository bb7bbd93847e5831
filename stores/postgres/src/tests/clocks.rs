//! What a process knows about the clock of the server, and what it must not rely on.

use super::*;
use locker_cas::CasStore;
use locker_core::{
    primitives::{HoldKind, HoldRequest, Reply, Request},
    store::Store,
};
use locker_harness::{Fault, Proxy};

const LEASE: Duration = Duration::from_secs(60);

/// A store with the engine, and what its connections share.
async fn engine(url: &str) -> (Arc<CasStore<Postgres>>, Arc<Shared>) {
    let opening = Opening::default();
    let backend = in_time("a store", open(url, &opening)).await.unwrap();
    let shared = Arc::clone(backend.driver());
    (CasStore::new(backend, &opening).unwrap(), shared)
}

/// Makes the process believe that this was the time of the server, this long ago.
fn believe(shared: &Shared, server: u64, ago: Duration) {
    let then = i64::try_from(server).unwrap() - i64::try_from(ago.as_micros()).unwrap();
    shared.server.believe(Timestamp::now() - ago, then);
}

fn server_time(server: &PostgresServer) -> u64 {
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    block_in_place(|| server.psql(now)).parse().unwrap()
}

fn acquire() -> (Id, Request) {
    let id = Id::random();
    (id, HoldKind::Lock.acquire(id, LEASE, None))
}

/// After 16 h all calls of such a process failed, although its other connections were well.
#[tokio::test(flavor = "multi_thread")]
async fn store_works_without_its_listening_address() {
    let Some(server) = PostgresServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (store, shared) = engine(&format!("{}?listen=127.0.0.1:{}", server.url(), proxy.port())).await;
    let (known, new) = (fresh("known"), fresh("new"));
    let (holder, request) = acquire();
    assert!(matches!(store.call(&known, &request).await, Ok(Reply::Granted { .. })));
    proxy.set(Fault::Reset);
    let listening = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7465";
    until("the end of listening", async || block_in_place(|| server.psql(listening)) == "0").await;
    let day = Duration::from_secs(24 * 3600);
    for key in [&known, &new] {
        believe(&shared, server_time(&server), day);
        let renew = Request::Lock(HoldRequest::Renew { id: holder, lease: LEASE, once: None });
        let request = if key == &known { renew } else { acquire().1 };
        let reply = store.call(key, &request).await;
        assert!(matches!(reply, Ok(Reply::Granted { .. } | Reply::Renewed { .. })), "{key}: {reply:?}");
    }
    // A comparison, and a write, bring the time as well.
    let renew = Request::Lock(HoldRequest::Renew { id: holder, lease: 2 * LEASE, once: None });
    for request in [Request::Inspect, renew] {
        believe(&shared, server_time(&server), Duration::from_secs(3600));
        store.call(&known, &request).await.unwrap();
        let spread = shared.server.time().spread;
        assert!(spread < Duration::from_secs(1), "{request:?}: {spread:?}");
    }
}

/// The machine was paused, and its own clock did not count that: the hold ended while its holder relied on it.
#[tokio::test(flavor = "multi_thread")]
async fn write_shows_that_the_clock_was_behind() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let (store, shared) = engine(&url).await;
    let key = fresh("behind");
    let held_until = || {
        let until = format!("SELECT held_until FROM {schema}.locker_keys WHERE key = '{key}'");
        block_in_place(|| server.psql(&until)).parse::<u64>().unwrap()
    };
    let lease = u64::try_from(LEASE.as_micros()).unwrap();
    let before = server_time(&server);
    believe(&shared, before - lease / 2, Duration::ZERO);
    let (holder, request) = acquire();
    match store.call(&key, &request).await {
        // Another answer may have shown it before.
        Ok(reply) => assert!(held_until() >= before + lease, "{reply:?}"),
        Err(error) => assert!(error.kind() == ErrorKind::Unavailable && !error.is_certain(), "{error}"),
    }
    assert!(matches!(store.call(&key, &request).await, Ok(Reply::Granted { .. })));
    let before = server_time(&server);
    let renew = Request::Lock(HoldRequest::Renew { id: holder, lease: LEASE, once: None });
    assert!(matches!(store.call(&key, &renew).await, Ok(Reply::Renewed { .. })));
    assert!(held_until() >= before + lease);
}
