mod auth;
mod clock;
mod crowds;
mod faults;
mod inboxes;
mod lifetimes;
#[cfg(feature = "tls")]
mod tls;
mod versions;

use super::{
    Zookeeper,
    keys::BUCKETS,
    link::Link,
    ops::{ANY, Op},
};
use locker_cas::{
    Backend, Basis, CasStore, Inbox, Message, Outcome, Version, Write,
    contract::{self, Party},
};
use locker_core::{
    clock::Timestamp,
    error::{ErrorKind, Result},
    key::Key,
    store::opening::Opening,
};
use locker_harness::{Fault, GENEROUS, Proxy, ZookeeperServer, free_port, in_time, until};
use locker_runtime::Locker;
use std::time::Duration;

async fn party(url: &str) -> Party<Zookeeper> {
    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_secs(4);
    Party::new(patiently(url, &opening).await)
}

/// Opens a store, however slow the server is at first.
async fn patiently(url: &str, opening: &Opening) -> Zookeeper {
    let opened = async {
        loop {
            match Zookeeper::open(url, opening).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                opened => return opened.unwrap(),
            }
        }
    };
    in_time("a store", opened).await
}

/// Returns a store with a command timeout of 4 s, twice the usual one, for a busy machine.
async fn open(url: &str) -> Result<Zookeeper> {
    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_secs(4);
    in_time("a store", Zookeeper::open(url, &opening)).await
}

/// Returns a store whose calls have the usual limits, and may fail on a busy machine.
async fn impatient(url: &str) -> Party<Zookeeper> {
    Party::new(patiently(url, &Opening::default()).await)
}

/// Opens a store as another process does.
async fn process(url: &str) -> Locker {
    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_secs(2);
    locker(url, &opening).await
}

async fn locker(url: &str, opening: &Opening) -> Locker {
    let store = CasStore::new(patiently(url, opening).await, opening).unwrap();
    let locker = Locker::builder().store(store).command_timeout(opening.network.command_timeout);
    in_time("a locker", locker.timeout(GENEROUS).build()).await.unwrap()
}

fn message(to: Inbox, text: &str) -> Message {
    Message { to, text: text.to_owned() }
}

/// Writes whatever the errors in between, as the store does: looks, and writes again if it was not done.
async fn write_in_spite_of_errors(party: &Party<Zookeeper>, key: &Key, value: &[u8]) -> Version {
    let writing = async {
        loop {
            let (version, present) = read_in_spite_of_errors(party, key).await;
            if present.as_deref() == Some(value) {
                return version;
            }
            let write = contract::write(key, version, value);
            if let Ok(Outcome::Matched { version, .. }) = party.backend.exchange(write).await {
                return version;
            }
        }
    };
    in_time("a write in spite of errors", writing).await
}

async fn read_in_spite_of_errors(party: &Party<Zookeeper>, key: &Key) -> (Version, Option<Vec<u8>>) {
    let reading = async {
        loop {
            match party.backend.exchange(contract::comparison(key, -1)).await {
                Ok(Outcome::Differs { version, value }) => return (version, value),
                Ok(matched) => panic!("{matched:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    in_time("a look in spite of errors", reading).await
}

/// Sends messages until one is heard.
async fn hears(from: &Party<Zookeeper>, to: &Party<Zookeeper>, text: &str) {
    until(text, async || {
        drop(from.backend.send(vec![message(to.backend.inbox(), text)]).await);
        to.texts().iter().any(|heard| heard == text)
    })
    .await;
}

/// The connection of a store, for requests about its nodes.
async fn link(store: &Zookeeper) -> Link {
    store.exchange.client.link(Timestamp::now() + GENEROUS).await.unwrap()
}

async fn data(store: &Zookeeper, path: &str) -> Option<String> {
    let got = link(store).await.get(path).await.unwrap();
    got.map(|(data, _)| String::from_utf8_lossy(&data).into_owned())
}

async fn delete(store: &Zookeeper, path: &str) {
    link(store).await.carry_out(&Op::Delete(path.into(), ANY)).await.unwrap();
}

/// Returns the names in a node, 0 if there is none.
async fn count(store: &Zookeeper, path: &str) -> usize {
    link(store).await.children(path).await.map_or(0, |names| names.len())
}

async fn count_values(store: &Zookeeper) -> usize {
    let mut all = 0;
    for number in 0..BUCKETS {
        all += count(store, &store.exchange.keys.bucket(number)).await;
    }
    all
}

#[tokio::test]
async fn keeps_the_contract() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
    assert_eq!(one.gaps(), 0);
}

#[tokio::test]
async fn ensemble_keeps_the_contract() {
    let Some(cluster) = locker_harness::ZookeeperCluster::start(3) else { return };
    let at = |member| format!("zk://127.0.0.1:{}", cluster.port(member));
    let leader = cluster.leader();
    // A follower may be behind the leader.
    let (one, other) = (party(&at(leader)).await, party(&at((leader + 1) % 3)).await);
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
    assert_eq!(one.gaps(), 0);
}

#[tokio::test]
async fn roots_are_apart() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&format!("{}/a/b", server.url())).await);
    let key = contract::fresh("apart");
    one.write(contract::write(&key, 0, b"x")).await;
    assert_eq!(other.read(&key).await, (0, None));
    assert_eq!(other.backend.list("", None, 10).await.unwrap(), []);
    assert_eq!(one.backend.list("", None, 10).await.unwrap(), [(key.to_string(), b"x".to_vec())]);
    let sent = one.backend.send(vec![message(other.backend.inbox(), "x")]).await;
    assert_eq!(sent.unwrap(), [other.backend.inbox()]);
}

#[tokio::test]
async fn value_of_a_megabyte_has_messages_beside_it() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let (key, value) = (contract::fresh("large"), vec![7; one.backend.max_value_len()]);
    let text = |number: usize| format!("{number} {}", "x".repeat(200 << 10));
    let messages: Vec<_> = (0..4).map(|number| message(other.backend.inbox(), &text(number))).collect();
    let mut version = 0;
    for _ in 0..2 {
        version =
            one.write(Write { messages: messages.clone(), ..contract::write(&key, version, &value) }).await;
        assert_eq!(other.read(&key).await, (version, Some(value.clone())));
    }
    until("the messages", async || other.texts().len() == 8).await;
    assert_eq!(other.texts()[..4], (0..4).map(text).collect::<Vec<_>>());
    let long = Key::new(&format!("{}{}", "y".repeat(3_900), locker_core::id::Id::random()));
    one.write(contract::write(&long, 0, &value)).await;
}

#[tokio::test]
async fn value_or_key_that_is_too_large_is_misused() {
    let Some(server) = ZookeeperServer::start() else { return };
    let one = party(&server.url()).await;
    let (key, long) = (contract::fresh("huge"), Key::new(&"x".repeat(4_001)));
    for (write, why) in [
        (contract::write(&key, 0, &vec![7; one.backend.max_value_len() + 1]), "1000000 bytes"),
        (contract::write(&long, 0, b"x"), "the key is too long"),
    ] {
        let error = one.backend.exchange(write).await.unwrap_err();
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Misused, true), "{error}");
        assert!(error.message().contains(why), "{error}");
    }
    one.write(contract::write(&key, 0, b"x")).await;
}

/// A message that no request has room for is lost, as messages may be.
#[tokio::test]
async fn huge_message_does_not_end_the_connection() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let messages =
        vec![message(other.backend.inbox(), &"x".repeat(2 << 20)), message(other.backend.inbox(), "y")];
    one.write(Write { messages, ..contract::write(&contract::fresh("huge"), 0, b"x") }).await;
    until("the other message", async || other.texts() == ["y"]).await;
}

/// More than one transaction has room for.
#[tokio::test]
async fn write_tells_which_of_many_inboxes_are_gone() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let mut gone: Vec<_> = (0..700).filter(|inbox| *inbox != other.backend.inbox()).collect();
    let mut messages: Vec<_> = gone.iter().map(|inbox| message(*inbox, "x")).collect();
    messages.extend(["a", "b"].map(|text| message(other.backend.inbox(), text)));
    let write = Write { messages, ..contract::write(&contract::fresh("many"), 0, b"x") };
    let Outcome::Matched { gone: mut reported, .. } = one.exchange(write).await else { panic!() };
    gone.sort_unstable();
    reported.sort_unstable();
    assert_eq!(reported, gone);
    until("the messages", async || other.texts() == ["a", "b"]).await;
}

#[tokio::test]
async fn quick_messages_are_all_heard_in_order() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let texts: Vec<_> = (0..500).map(|number| number.to_string()).collect();
    for text in &texts {
        assert_eq!(one.backend.send(vec![message(other.backend.inbox(), text)]).await.unwrap(), [0_u32; 0]);
    }
    until("all messages", async || other.texts().len() >= texts.len()).await;
    assert_eq!(other.texts(), texts);
    let mail = one.backend.exchange.keys.mail(other.backend.inbox());
    until("their deletion", async || count(&one.backend, &mail).await == 0).await;
}

#[tokio::test]
async fn unreachable_ensemble_is_unavailable() {
    let url = format!("zk://ann:secret@127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let opening = Opening { timeout: Duration::from_millis(300), ..Opening::default() };
    let error = in_time("the error", Zookeeper::open(&url, &opening)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true));
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    let lazy = Zookeeper::open(&url, &Opening { lazy: true, ..Opening::default() }).await.unwrap();
    assert!(!format!("{lazy:?}").contains("secret"), "{lazy:?}");
    let write = contract::write(&contract::fresh("x"), 0, b"x");
    let error = in_time("the error", lazy.exchange(write)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.message().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn lazy_store_serves_when_the_server_is_up() {
    let Some(mut server) = ZookeeperServer::start() else { return };
    server.kill();
    let opening = Opening { lazy: true, ..Opening::default() };
    let lazy = Party::new(Zookeeper::open(&server.url(), &opening).await.unwrap());
    server.restart();
    write_in_spite_of_errors(&lazy, &contract::fresh("lazy"), b"x").await;
    assert_ne!(lazy.backend.fence_floor(), 0);
}

/// Redis, for example, or a web server.
#[tokio::test]
async fn other_servers_are_refused() {
    let Some(server) = locker_harness::RedisServer::start() else { return };
    let error = open(&format!("zk://127.0.0.1:{}", server.port())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains(&server.port().to_string()), "{error}");
}
