//! The backend against real servers.

mod epochs;
mod faults;
mod fences;
mod inboxes;
mod refused;
#[cfg(feature = "tls")]
mod tls;

use super::*;
use futures_util::future::join_all;
use locker_cas::{
    Holder, Message, Outcome, Version, Write,
    contract::{self, Party, comparison, fresh, write},
    served::{Exchange, Job},
};
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    id::Id,
    sync::lock,
};
use locker_harness::{GENEROUS, MysqlServer, in_time, until};
use std::{
    sync::{Mutex, Weak},
    time::Duration,
};
use tokio::{sync::oneshot, task::block_in_place};

/// The server that most tests share. It ends with the last of them.
fn shared_server() -> Option<Arc<MysqlServer>> {
    static SERVER: Mutex<Weak<MysqlServer>> = Mutex::new(Weak::new());
    let mut running = lock(&SERVER);
    if let Some(server) = running.upgrade() {
        return Some(server);
    }
    let server = Arc::new(MysqlServer::start()?);
    *running = Arc::downgrade(&server);
    Some(server)
}

/// Returns the URL of a new database, so that no other test uses its tables, and its name.
fn in_new_database(server: &MysqlServer) -> (String, String) {
    let name = format!("d{}", Id::random());
    server.sql(&format!("CREATE DATABASE {name}"));
    (server.url_of(&name), name)
}

async fn open(url: &str, opening: &Opening) -> Result<Mysql> {
    open_with(Box::new(random_inbox), ANSWER_LIMIT, url, opening).await
}

/// Returns a store in which a slow answer is waited for.
async fn party(url: &str) -> Party<Mysql> {
    patient(url, GENEROUS).await
}

/// Returns a store in which an answer takes as long as for users.
async fn hasty(url: &str) -> Party<Mysql> {
    patient(url, ANSWER_LIMIT).await
}

async fn patient(url: &str, answer_limit: Duration) -> Party<Mysql> {
    let opening = Opening::default();
    let store = in_time("a store", open_with(Box::new(random_inbox), answer_limit, url, &opening)).await;
    Party::new(store.unwrap_or_else(|error| panic!("{url}: {error:?}")))
}

async fn pair(url: &str) -> (Party<Mysql>, Party<Mysql>) {
    tokio::join!(party(url), party(url))
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_the_contract() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let (one, other) = pair(&url).await;
    contract::all(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_the_contract_with_one_lane_and_polling() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let (one, other) = pair(&format!("{url}?lanes=1&poll=10ms")).await;
    contract::all(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_processes_are_reported() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let (one, ended) = pair(&url).await;
    contract::gone_inboxes_are_reported(&one, ended).await;
}

/// A removal raises the fence, and an insert that was sent before it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn late_insert_after_a_removal_does_nothing() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
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

    let (answer, outcome) = oneshot::channel();
    let epoch = one.backend.epoch().id;
    one.backend.queue().send(Job::Exchange(Exchange { write: insert, removals: late, epoch, answer }));
    assert_eq!(outcome.await.unwrap().unwrap(), Outcome::Differs { version: 0, value: None });
    let again = one.write(write(&key, 0, b"again")).await;
    assert_eq!(other.read(&key).await, (again, Some(b"again".to_vec())));
    let fence = block_in_place(|| server.sql(&format!("SELECT fence FROM {database}.locker_meta")));
    assert!(fence.parse::<u64>().unwrap() >= 1 << 60);
}

/// Writes that wait for one connection are inserted, updated and lost in one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn many_writes_go_together() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let party = party(&format!("{url}?lanes=1")).await;
    let keys: Vec<_> = (0..60).map(|at| fresh(&at.to_string())).collect();
    let mut versions: Vec<Version> = vec![0; keys.len()];
    let me = party.backend.inbox();
    for round in 0..3_u8 {
        let writes = keys.iter().zip(&versions).enumerate().map(|(at, (key, version))| {
            // Each third write names a wrong version.
            let expected = if at % 3 == usize::from(round) { version + 7 } else { *version };
            let holder = Holder { fence: 9, until: Timestamp::from_micros(5) };
            let lasts = if at == 0 { Duration::MAX } else { Duration::from_secs(60) };
            let messages = vec![Message { to: me, text: format!("{round} {at}") }];
            party.exchange(Write { holder: Some(holder), lasts, messages, ..write(key, expected, &[round]) })
        });
        for (at, outcome) in join_all(writes).await.into_iter().enumerate() {
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
    for (outcome, version) in join_all(compared).await.into_iter().zip(versions) {
        assert_eq!(outcome, Outcome::Matched { version, gone: Vec::new() });
    }
    let rows = block_in_place(|| {
        server.sql(&format!(
            "SELECT SUM(fence = 9 AND held_until = 5), SUM(over_at > 1e18),
             SUM(over_at / 1000000 - UNIX_TIMESTAMP() BETWEEN 20 AND 61) FROM {database}.locker_keys"
        ))
    });
    assert_eq!(rows, "60\t1\t59");
    // Those of lost writes are not sent.
    let sent = |at: usize, round: usize| at % 3 != round;
    let mut expected: Vec<_> = (0..3)
        .flat_map(|round| (0..60).filter(move |at| sent(*at, round)).map(move |at| format!("{round} {at}")))
        .collect();
    until("all messages", async || party.texts().len() >= expected.len()).await;
    let mut heard = party.texts();
    expected.sort_unstable();
    heard.sort_unstable();
    assert_eq!(heard, expected);
}

/// A write whose messages do not fit into a packet is followed by them.
#[tokio::test(flavor = "multi_thread")]
async fn many_messages_follow_their_write() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let (one, other) = pair(&url).await;
    let text = |at: usize| format!("{at} {}", "x".repeat(300_000));
    let messages: Vec<_> = (0..30).map(|at| Message { to: other.backend.inbox(), text: text(at) }).collect();
    let key = fresh("much");
    let version = one.write(Write { messages: messages.clone(), ..write(&key, 0, b"x") }).await;
    until("all messages", async || other.texts().len() == 30).await;
    assert_eq!(other.texts(), (0..30).map(text).collect::<Vec<_>>());
    let lost = one.exchange(Write { messages: messages.clone(), ..write(&key, version + 1, b"y") }).await;
    assert!(matches!(lost, Outcome::Differs { .. }), "{lost:?}");
    // One that comes while the other process connects again may be lost.
    until("one more", async || {
        one.backend.send(messages[..1].to_vec()).await.unwrap();
        other.texts().len() > 30
    })
    .await;
    assert!(other.texts()[30..].iter().all(|heard| *heard == text(0)), "messages of a write that was lost");
}

/// Messages that were heard do not stay in the table.
#[tokio::test(flavor = "multi_thread")]
async fn heard_messages_are_removed() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let (one, other) = pair(&url).await;
    contract::faults::hear_again(&one, &other).await;
    until("an empty table", async || {
        block_in_place(|| server.sql(&format!("SELECT COUNT(*) FROM {database}.locker_mail"))) == "0"
    })
    .await;
}

/// Those of a process that has ended.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_nobody_hears_are_swept() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let one = party(&url).await;
    one.backend
        .send(vec![Message { to: 1, text: "x".into() }, Message { to: 2, text: "y".into() }])
        .await
        .unwrap();
    let table = format!("{database}.locker_mail");
    block_in_place(|| server.sql(&format!("UPDATE {table} SET at=at-61000000 WHERE inbox=1")));
    sweep::remove(one.backend.driver()).await.unwrap();
    let left = block_in_place(|| server.sql(&format!("SELECT inbox FROM {table} WHERE inbox<3")));
    assert_eq!(left, "2");
}
