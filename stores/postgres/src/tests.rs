//! The backend against real servers.

mod clocks;
mod failover;
mod faults;
mod inboxes;
mod pool;
mod refused;
mod strangers;
#[cfg(feature = "tls")]
mod tls;
mod transactions;

use super::*;
use locker_cas::{
    Holder, Inbox, Message, Outcome, Version, Write,
    contract::{self, Party, comparison, fresh, write},
    served::{Exchange, Job},
};
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    id::Id,
    key::Key,
    sync::lock,
};
use locker_harness::{Fault, GENEROUS, PostgresServer, Proxy, in_time, until};
use std::{
    process::{Child, Stdio},
    sync::{Mutex, Weak, atomic::Ordering},
    time::Duration,
};
use tokio::{sync::oneshot, task::block_in_place};

/// The server that most tests share. It ends with the last of them.
fn shared_server() -> Option<Arc<PostgresServer>> {
    static SERVER: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
    let mut running = lock(&SERVER);
    if let Some(server) = running.upgrade() {
        return Some(server);
    }
    let server = Arc::new(PostgresServer::with(&["fsync=off", "max_connections=300"])?);
    *running = Arc::downgrade(&server);
    Some(server)
}

/// Returns the URL of a new schema, so that no other test uses its tables.
fn in_new_schema(server: &PostgresServer) -> (String, String) {
    let schema = format!("s{}", Id::random());
    (format!("{}?schema={schema}", server.url()), schema)
}

async fn open(url: &str, opening: &Opening) -> Result<Postgres> {
    open_with(Box::new(random_inbox), ANSWER_LIMIT, url, opening).await
}

/// Returns a store in which a slow answer is waited for.
async fn party(url: &str) -> Party<Postgres> {
    patient(url, GENEROUS).await
}

/// Returns a store in which an answer takes as long as for users.
async fn hasty(url: &str) -> Party<Postgres> {
    patient(url, ANSWER_LIMIT).await
}

async fn patient(url: &str, answer_limit: Duration) -> Party<Postgres> {
    let opening = Opening::default();
    let store = in_time("a store", open_with(Box::new(random_inbox), answer_limit, url, &opening)).await;
    Party::new(store.unwrap_or_else(|error| panic!("{url}: {error:?}")))
}

async fn pair(url: &str) -> (Party<Postgres>, Party<Postgres>) {
    tokio::join!(party(url), party(url))
}

/// A transaction of a user that has run a statement and goes on.
struct Sleeper(Child);

impl Sleeper {
    async fn start(server: &PostgresServer, sql: &str) -> Self {
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        Self::start_until(server, sql, sleeping).await
    }

    /// Returns once the query counts one.
    async fn start_until(server: &PostgresServer, sql: &str, is_ready: &str) -> Self {
        let mut psql = server.psql_command();
        psql.args(["-c", &format!("BEGIN; {sql}; SELECT pg_sleep(600)")]);
        let child = psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the transaction", async || block_in_place(|| server.psql(is_ready)) == "1").await;
        Self(child)
    }

    /// Ends it, unless it has ended.
    fn end(mut self, server: &PostgresServer) {
        let end =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        assert_eq!(block_in_place(|| server.psql(end)), "1");
        self.0.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_the_contract_of_backends() {
    let Some(server) = shared_server() else { return };
    let (one, other) = pair(&server.url()).await;
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
}

#[tokio::test]
async fn keeps_the_contract_with_one_connection_for_writes() {
    let Some(server) = shared_server() else { return };
    let (one, other) = pair(&format!("{}?lanes=1", server.url())).await;
    contract::all(&one, &other).await;
}

/// The first users of a schema all try to make it.
#[tokio::test]
async fn stores_may_be_opened_for_the_first_time_at_once() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_schema(&server);
    let key = fresh("first");
    let parties = futures_util::future::join_all((0..8).map(|_| party(&url))).await;
    parties[0].write(write(&key, 0, b"x")).await;
    assert_eq!(parties[7].read(&key).await.1, Some(b"x".to_vec()));
}

/// An administrator may run the same statements, also twice.
#[tokio::test]
async fn tables_of_an_administrator_are_used() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    server.psql(&format!("CREATE SCHEMA {schema}; {}", schema_sql(&schema)));
    server.psql(&schema_sql(&schema));
    let created = server.psql(&format!("SELECT removals FROM {schema}.locker_meta"));
    let party = party(&url).await;
    party.write(write(&fresh("made"), 0, b"x")).await;
    assert_eq!(server.psql(&format!("SELECT removals FROM {schema}.locker_meta")), created);
}

#[tokio::test]
async fn connections_are_few_and_end_with_the_store() {
    let Some(server) = shared_server() else { return };
    server.psql("CREATE DATABASE counted");
    let url =
        server.url().replace(&format!("{}/locker", server.port()), &format!("{}/counted", server.port()));
    let count = || {
        let count =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = 'counted' AND application_name = 'locker'";
        server.psql(count).parse::<usize>().unwrap()
    };
    let party = party(&url).await;
    let keys: Vec<_> = (0..200).map(|at| fresh(&at.to_string())).collect();
    futures_util::future::join_all(keys.iter().map(|key| party.write(write(key, 0, b"x")))).await;
    until("all connections", async || count() == 6).await;
    drop(party);
    until("their end", async || count() == 0).await;
}

/// Across a network the server would be idle for most of a round trip.
#[tokio::test(flavor = "multi_thread")]
async fn far_server_gets_writes_before_it_has_answered() {
    let Some(server) = PostgresServer::start() else { return };
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::Delay(Duration::from_millis(100)));
    let url = proxy.url().replace("redis://", "postgres://locker@") + "/locker?sslmode=disable&lanes=1";
    let (far, near) = (party(&url).await, party(&server.url()).await);
    let keys = [fresh("one"), fresh("other")];
    let mut versions = [0, 0];
    until("a write before the answer to another", async || {
        let write = |at: usize| far.write(write(&keys[at], versions[at], b"x"));
        let second = async {
            // The first one is sent.
            tokio::time::sleep(Duration::from_millis(10)).await;
            write(1).await
        };
        let ((first, is_early), second) = tokio::join!(
            async {
                let version = write(0).await;
                (version, near.read(&keys[1]).await.0 > versions[1])
            },
            second
        );
        versions = [first, second];
        is_early
    })
    .await;
}

#[tokio::test]
async fn misused_keys_are_refused() {
    let Some(server) = shared_server() else { return };
    let party = party(&server.url()).await;
    for key in ["x".repeat(2_001), "a\0b".into()] {
        let error = party.backend.exchange(write(&Key::new(&key), 0, b"x")).await.unwrap_err();
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Misused, true), "{error}");
    }
    // Characters that PostgreSQL compresses hardly: the entry of the index is large.
    let longest: String = (0..).map(|_| Id::random().to_string()).take(63).collect();
    let key = Key::new(&longest[..2_000]);
    let version = party.write(write(&key, 0, b"x")).await;
    party.write(write(&key, version, b"y")).await;
}

#[tokio::test]
async fn message_that_is_too_long_becomes_a_gap() {
    let Some(server) = shared_server() else { return };
    let (one, other) = pair(&server.url()).await;
    let text = |length: usize| "x".repeat(length);
    let message = |length| vec![Message { to: other.backend.inbox(), text: text(length) }];
    assert_eq!(one.backend.send(message(7_999)).await.unwrap(), [0_u32; 0]);
    until("the longest message", async || other.texts() == [text(7_999)]).await;
    assert_eq!(other.gaps(), 0);
    assert_eq!(one.backend.send(message(8_000)).await.unwrap(), [0_u32; 0]);
    until("a gap", async || other.gaps() == 1).await;
    assert_eq!(other.texts().len(), 1);
}

/// A removal raises the fence, and an insert that was sent before it does nothing.
#[tokio::test]
async fn late_insert_after_a_removal_does_nothing() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let (one, other) = pair(&url).await;
    let (key, lasting) = (fresh("removed"), fresh("lasting"));
    // Far above the clock, which all other fences are above anyway.
    let holder = Holder { fence: 1 << 60, until: Timestamp::now() + Duration::from_secs(1) };
    let insert = Write { holder: Some(holder), lasts: Duration::ZERO, ..write(&key, 0, b"x") };
    one.write(insert.clone()).await;
    let lasting_version = one.write(write(&lasting, 0, b"x")).await;
    let late = one.backend.driver().server.removals();
    assert!(other.backend.fence_floor() < 1 << 60);

    until("the removal", async || {
        sweep::remove(other.backend.driver()).await.unwrap();
        other.read(&key).await == (0, None)
    })
    .await;
    assert!(other.backend.fence_floor() >= 1 << 60);
    assert_eq!(other.read(&lasting).await.0, lasting_version);

    for durable in [true, false] {
        let (answer, outcome) = oneshot::channel();
        let epoch = one.backend.epoch().id;
        let exchange = Exchange { write: Write { durable, ..insert.clone() }, removals: late, epoch, answer };
        one.backend.queue().send(Job::Exchange(exchange));
        assert_eq!(outcome.await.unwrap().unwrap(), Outcome::Differs { version: 0, value: None });
    }
    let again = one.write(write(&key, 0, b"again")).await;
    assert_eq!(other.read(&key).await, (again, Some(b"again".to_vec())));
    assert!(
        server.psql(&format!("SELECT fence FROM {schema}.locker_meta")).parse::<u64>().unwrap() >= 1 << 60
    );
}

/// Writes that wait for one connection are inserted, updated and lost in one statement.
#[tokio::test]
async fn many_writes_go_together() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let party = party(&format!("{url}&lanes=1")).await;
    let keys: Vec<_> = (0..60).map(|at| fresh(&at.to_string())).collect();
    let mut versions: Vec<Version> = vec![0; keys.len()];
    for round in 0..3_u8 {
        let writes = keys.iter().zip(&versions).enumerate().map(|(at, (key, version))| {
            // Each third write names a wrong version.
            let expected = if at % 3 == usize::from(round) { version + 7 } else { *version };
            let holder = Holder { fence: 9, until: Timestamp::from_micros(5) };
            let lasts = if at == 0 { Duration::MAX } else { Duration::from_secs(60) };
            let durable = at % 2 == 0;
            party.exchange(Write { durable, holder: Some(holder), lasts, ..write(key, expected, &[round]) })
        });
        for (at, outcome) in futures_util::future::join_all(writes).await.into_iter().enumerate() {
            match outcome {
                Outcome::Matched { version, gone } if at % 3 != usize::from(round) => {
                    assert_eq!(gone, [0_u32; 0]);
                    versions[at] = version;
                }
                Outcome::Differs { version, .. } if at % 3 == usize::from(round) => {
                    assert_eq!(version, versions[at]);
                }
                other => panic!("{at} in {round}: {other:?}"),
            }
        }
    }
    let compared = keys.iter().zip(&versions).map(|(key, version)| party.exchange(comparison(key, *version)));
    for (outcome, version) in futures_util::future::join_all(compared).await.into_iter().zip(versions) {
        assert_eq!(outcome, Outcome::Matched { version, gone: Vec::new() });
    }
    let rows = server.psql(&format!(
        "SELECT count(*) FILTER (WHERE fence = 9 AND held_until = 5), count(*) FILTER (WHERE over_at > 1e18),
         count(*) FILTER (WHERE over_at / 1000000 - extract(epoch FROM now()) BETWEEN 20 AND 61)
         FROM {schema}.locker_keys"
    ));
    assert_eq!(rows, "60|1|59");
}
