mod auth;
mod clock;
mod faults;
mod inboxes;
mod lifetimes;
mod partitions;
#[cfg(feature = "tls")]
mod tls;

use super::{Etcd, health};
use locker_cas::{
    Backend, Inbox, Message, Outcome, Version, Write,
    contract::{self, Party},
};
use locker_core::{
    error::{ErrorKind, Result},
    key::Key,
    store::opening::Opening,
};
use locker_harness::{EtcdServer, Fault, Proxy, free_port, in_time, until};
use std::time::Duration;

async fn party(url: &str) -> Party<Etcd> {
    Party::new(open(url).await.unwrap())
}

/// Returns a store with a command timeout of 4 s, twice the usual one, for a busy machine.
async fn open(url: &str) -> Result<Etcd> {
    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_secs(4);
    in_time("a store", Etcd::open(url, &opening)).await
}

/// Returns a store whose calls have the usual limits, and may fail on a busy machine.
async fn impatient(url: &str) -> Party<Etcd> {
    Party::new(in_time("a store", Etcd::open(url, &Opening::default())).await.unwrap())
}

fn message(to: Inbox, text: &str) -> Message {
    Message { to, text: text.to_owned() }
}

/// Writes whatever the errors in between, as the store does: looks, and writes again if it was not done.
async fn write_in_spite_of_errors(party: &Party<Etcd>, key: &Key, value: &[u8]) -> Version {
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

async fn read_in_spite_of_errors(party: &Party<Etcd>, key: &Key) -> (Version, Option<Vec<u8>>) {
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
async fn hears(from: &Party<Etcd>, to: &Party<Etcd>, text: &str) {
    until(text, async || {
        drop(from.backend.send(vec![message(to.backend.inbox(), text)]).await);
        to.texts().iter().any(|heard| heard == text)
    })
    .await;
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| char::from(DIGITS[(bits & 63) as usize]);
    let group = |bytes: &[u8]| {
        let byte = |at: usize| u32::from(*bytes.get(at).unwrap_or(&0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digits = [18, 12, 6, 0].map(|shift| digit(bits >> shift));
        (0..4).map(|at| if at > bytes.len() { '=' } else { digits[at] }).collect::<String>()
    };
    text.as_bytes().chunks(3).map(group).collect()
}

/// What the gateway of a member says about a key, by name: `value`, `lease`, `mod_revision`.
struct Seen(String);

impl Seen {
    fn of(server: &EtcdServer, key: &str) -> Self {
        let answer = server.ask("kv/range", &format!(r#"{{"key":"{}"}}"#, base64(key)));
        Self(answer.expect("an answer of the gateway"))
    }

    fn word(&self, name: &str) -> Option<&str> {
        // The header has a revision of its own.
        let kv = self.0.split_once(r#""kvs""#)?.1;
        kv.split_once(&format!(r#""{name}":""#))?.1.split('"').next()
    }

    fn number(&self, name: &str) -> i64 {
        self.word(name).expect(name).parse().expect(name)
    }
}

fn delete(server: &EtcdServer, key: &str) {
    server.ask("kv/deleterange", &format!(r#"{{"key":"{}"}}"#, base64(key))).expect("a deletion");
}

/// Returns the number of keys that begin with `prefix`.
fn count(server: &EtcdServer, prefix: &str) -> usize {
    let end =
        format!("{}{}", &prefix[..prefix.len() - 1], char::from(prefix.as_bytes()[prefix.len() - 1] + 1));
    let body = format!(r#"{{"key":"{}","range_end":"{}","count_only":true}}"#, base64(prefix), base64(&end));
    let answer = server.ask("kv/range", &body).expect("an answer of the gateway");
    let count = answer.split_once(r#""count":""#).map(|(_, rest)| rest.split('"').next().unwrap().parse());
    count.map_or(0, |count| count.unwrap())
}

#[tokio::test]
async fn keeps_the_contract() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
    assert_eq!(one.gaps(), 0);
}

#[tokio::test]
async fn prefixes_are_apart() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&format!("{}?prefix=a/b", server.url())).await);
    let key = contract::fresh("apart");
    one.write(contract::write(&key, 0, b"x")).await;
    assert_eq!(other.read(&key).await, (0, None));
    assert_eq!(other.backend.list("", None, 10).await.unwrap(), []);
    assert_eq!(one.backend.list("", None, 10).await.unwrap(), [(key.to_string(), b"x".to_vec())]);
    let sent = one.backend.send(vec![message(other.backend.inbox(), "x")]).await;
    assert_eq!(sent.unwrap(), [other.backend.inbox()]);
}

#[tokio::test]
async fn values_have_up_to_a_mebibyte_beside_messages() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let (key, value) = (contract::fresh("large"), vec![7; one.backend.max_value_len()]);
    let text = |number: usize| format!("{number} {}", "x".repeat(200 << 10));
    let messages = (0..4).map(|number| message(other.backend.inbox(), &text(number))).collect();
    let version = one.write(Write { messages, ..contract::write(&key, 0, &value) }).await;
    assert_eq!(other.read(&key).await, (version, Some(value)));
    until("the messages", async || other.texts().len() == 4).await;
    assert_eq!(other.texts(), (0..4).map(text).collect::<Vec<_>>());
}

#[tokio::test]
async fn request_that_is_too_large_is_misused() {
    let Some(server) = EtcdServer::start() else { return };
    let one = party(&server.url()).await;
    for len in [2 << 20, 4 << 20] {
        let key = contract::fresh("huge");
        let error = one.backend.exchange(contract::write(&key, 0, &vec![7; len])).await.unwrap_err();
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Misused, true), "{error}");
        assert!(error.message().contains("max-request-bytes"), "{error}");
    }
}

/// More than one transaction has room for.
#[tokio::test]
async fn write_tells_hundreds_of_inboxes_which_of_them_are_gone() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let mut gone: Vec<_> = (0..300).filter(|inbox| *inbox != other.backend.inbox()).collect();
    let mut messages: Vec<_> = gone.iter().map(|inbox| message(*inbox, "x")).collect();
    messages.extend(["a", "b"].map(|text| message(other.backend.inbox(), text)));
    let write = Write { messages, ..contract::write(&contract::fresh("many"), 0, b"x") };
    let Outcome::Matched { gone: mut reported, .. } = one.exchange(write).await else { panic!() };
    gone.sort_unstable();
    reported.sort_unstable();
    assert_eq!(reported, gone);
    until("the messages", async || other.texts() == ["a", "b"]).await;
    assert_eq!(count(&server, "locker/mail/"), 1, "mail for those who are gone");
}

/// Also messages that follow each other at once: each is a revision of the same key.
#[tokio::test]
async fn quick_messages_are_all_heard() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let texts: Vec<_> = (0..500).map(|number| number.to_string()).collect();
    for text in &texts {
        assert_eq!(one.backend.send(vec![message(other.backend.inbox(), text)]).await.unwrap(), [0_u32; 0]);
    }
    until("all messages", async || other.texts().len() >= texts.len()).await;
    assert_eq!(other.texts(), texts);
}

#[tokio::test]
async fn unreachable_cluster_is_unavailable() {
    let url = format!("etcd://ann:secret@127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let opening = Opening { timeout: Duration::from_millis(300), ..Opening::default() };
    let error = in_time("the error", Etcd::open(&url, &opening)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true));
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    let lazy = Etcd::open(&url, &Opening { lazy: true, ..Opening::default() }).await.unwrap();
    assert!(!format!("{lazy:?}").contains("secret"), "{lazy:?}");
    let write = contract::write(&contract::fresh("x"), 0, b"x");
    let error = in_time("the error", lazy.exchange(write)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.message().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn lazy_store_serves_when_the_cluster_is_up() {
    let Some(mut server) = EtcdServer::start() else { return };
    server.kill();
    let lazy = Etcd::open(&server.url(), &Opening { lazy: true, ..Opening::default() }).await.unwrap();
    let lazy = Party::new(lazy);
    server.restart();
    write_in_spite_of_errors(&lazy, &contract::fresh("lazy"), b"x").await;
    assert_ne!(lazy.backend.fence_floor(), 0);
}

/// Redis, for example, or a web server.
#[tokio::test]
async fn other_servers_are_refused() {
    let Some(server) = locker_harness::RedisServer::start() else { return };
    let error = open(&format!("etcd://127.0.0.1:{}", server.port())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains(&server.port().to_string()), "{error}");
}

#[tokio::test]
async fn history_is_known_until_it_is_compacted() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, key) = (party(&server.url()).await, contract::fresh("history"));
    let first = one.write(contract::write(&key, 0, b"x")).await;
    let second = one.write(contract::write(&key, first, b"y")).await;
    let (client, keys) = (&one.backend.client, &one.backend.keys);
    let status = health::status(client).await.unwrap();
    assert!(status.revision() >= second && status.db_size >= status.db_size_in_use, "{status:?}");
    assert!(status.db_size_in_use > 0 && status.errors.is_empty(), "{status:?}");
    assert!(health::has_revision(client, keys, first).await);
    server.ask("kv/compaction", &format!(r#"{{"revision":"{second}"}}"#)).unwrap();
    assert!(!health::has_revision(client, keys, first).await);
    assert!(health::has_revision(client, keys, second).await);
}
