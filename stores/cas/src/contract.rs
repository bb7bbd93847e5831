//! The promises of [`Backend`], as tests of the backends of two processes that share a store.
//!
//! Each function uses keys of its own. Run [`all`], or single functions where a backend needs another preparation.

pub mod faults;

use super::backend::{Backend, Inbox, Message, Outcome, Received, Version, Write};
use futures_util::future::join_all;
use locker_core::{id::Id, key::Key, sync::lock};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long a backend may take for anything that a test waits for.
const GENEROUS: Duration = Duration::from_secs(60);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let value = tokio::time::timeout(GENEROUS, future).await;
    value.unwrap_or_else(|_| panic!("waited {GENEROUS:?} for: {what}"))
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    in_time(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// A backend whose messages are recorded.
#[derive(Debug)]
pub struct Party<B> {
    /// The backend under test.
    pub backend: B,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug, Default)]
struct Heard {
    texts: Vec<String>,
    gaps: usize,
}

impl<B: Backend> Party<B> {
    /// Begins to record the messages of a backend.
    pub fn new(backend: B) -> Self {
        let heard = Arc::<Mutex<Heard>>::default();
        let record = Arc::clone(&heard);
        backend.listen(Box::new(move |received| match received {
            Received::Text(text) => lock(&record).texts.push(text.to_owned()),
            Received::Gap => lock(&record).gaps += 1,
        }));
        Self { backend, heard }
    }

    /// Returns the messages that were heard so far.
    pub fn texts(&self) -> Vec<String> {
        lock(&self.heard).texts.clone()
    }

    /// Returns how often messages may have been lost.
    pub fn gaps(&self) -> usize {
        lock(&self.heard).gaps
    }

    /// Carries out a write that must not fail.
    ///
    /// # Panics
    /// If the backend fails.
    pub async fn exchange(&self, write: Write) -> Outcome {
        let shown = format!("{} {:?}", write.key, write.expected);
        let outcome = in_time("an exchange", self.backend.exchange(write)).await;
        outcome.unwrap_or_else(|error| panic!("{shown}: {error:?}"))
    }

    /// Writes until the conflict with an earlier transaction is over. Returns the new version.
    ///
    /// # Panics
    /// If the backend fails.
    pub async fn write(&self, write: Write) -> Version {
        loop {
            match self.exchange(write.clone()).await {
                Outcome::Matched { version, .. } => return version,
                Outcome::Differs { version, .. } => assert_eq!(version, write.expected, "{}", write.key),
                ticked @ Outcome::Ticked(_) => panic!("{ticked:?}"),
            }
        }
    }

    /// Returns the present version and value.
    ///
    /// # Panics
    /// If the backend fails.
    pub async fn read(&self, key: &Key) -> (Version, Option<Vec<u8>>) {
        match self.exchange(comparison(key, -1)).await {
            Outcome::Differs { version, value } => (version, value),
            other => panic!("{key}: {other:?}"),
        }
    }
}

/// A key that no other test uses.
#[must_use]
pub fn fresh(name: &str) -> Key {
    Key::new(&format!("contract:{name}:{}", Id::random()))
}

/// A durable write that lasts an hour.
#[must_use]
pub fn write(key: &Key, expected: Version, value: &[u8]) -> Write {
    Write {
        key: key.clone(),
        expected,
        value: Some(value.to_vec()),
        durable: true,
        messages: Vec::new(),
        lasts: Duration::from_secs(3600),
        holder: None,
        holds: Duration::ZERO,
        epoch: None,
        ..Write::look(key.clone())
    }
}

/// A comparison of the version.
#[must_use]
pub fn comparison(key: &Key, expected: Version) -> Write {
    Write { value: None, durable: false, ..write(key, expected, b"") }
}

fn message(to: Inbox, text: &str) -> Message {
    Message { to, text: text.to_owned() }
}

/// Runs all functions of this file that need no more than two backends.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn all<B: Backend>(one: &Party<B>, other: &Party<B>) {
    values_are_kept(one, other).await;
    one_writer_of_each_version_wins(one, other).await;
    late_copies_do_nothing(one, other).await;
    large_values_are_kept(one, other).await;
    pages_are_in_the_order_of_bytes(one, other).await;
    messages_are_heard(one, other).await;
    lost_writes_send_nothing(one, other).await;
    clocks_agree(one, other);
}

/// A value is read as it was written, by each process, and replaced only at its version.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn values_are_kept<B: Backend>(one: &Party<B>, other: &Party<B>) {
    let key = fresh("kept");
    assert_eq!(one.read(&key).await, (0, None));
    let absent = one.exchange(comparison(&key, 0)).await;
    assert_eq!(absent, Outcome::Matched { version: 0, gone: Vec::new() });
    let mut version = 0;
    for (value, durable) in [(&b"first"[..], true), (b"", false), (b"\0\xff", true)] {
        let next = one.write(Write { durable, ..write(&key, version, value) }).await;
        assert_ne!(next, version);
        version = next;
        assert_eq!(other.read(&key).await, (version, Some(value.to_vec())));
        let compared = other.exchange(comparison(&key, version)).await;
        assert_eq!(compared, Outcome::Matched { version, gone: Vec::new() });
    }
    for expected in [0, version - 1, version + 1] {
        let refused = other.exchange(write(&key, expected, b"x")).await;
        assert_eq!(refused, Outcome::Differs { version, value: Some(b"\0\xff".to_vec()) }, "{expected}");
    }
}

/// Many tasks add 1 to one of three numbers: no addition is lost.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn one_writer_of_each_version_wins<B: Backend>(one: &Party<B>, other: &Party<B>) {
    const TASKS: usize = 24;
    const ADDITIONS: usize = 10;
    let keys = ["a", "b", "c"].map(fresh);
    let add = async |task: usize| {
        let party = if task.is_multiple_of(2) { one } else { other };
        let mut versions = Vec::new();
        for _ in 0..ADDITIONS {
            let key = &keys[task % keys.len()];
            let (mut version, mut value) = party.read(key).await;
            loop {
                let number = value.map_or(0, |value| String::from_utf8(value).unwrap().parse().unwrap());
                let next = (number + 1_usize).to_string();
                let durable = task % 4 < 2;
                match party.exchange(Write { durable, ..write(key, version, next.as_bytes()) }).await {
                    Outcome::Matched { version, .. } => break versions.push((task % keys.len(), version)),
                    Outcome::Differs { version: present, value: found } => {
                        (version, value) = (present, found);
                    }
                    ticked @ Outcome::Ticked(_) => panic!("{ticked:?}"),
                }
            }
        }
        versions
    };
    let mut versions = join_all((0..TASKS).map(add)).await.concat();
    for key in &keys {
        let number = one.read(key).await.1.unwrap();
        assert_eq!(String::from_utf8(number).unwrap(), (TASKS * ADDITIONS / keys.len()).to_string());
    }
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), TASKS * ADDITIONS, "two writes of one version");
}

/// A copy of a write that comes after another write has no effect.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn late_copies_do_nothing<B: Backend>(one: &Party<B>, other: &Party<B>) {
    let key = fresh("late");
    let insert = write(&key, 0, b"first");
    let first = one.write(insert.clone()).await;
    let update = write(&key, first, b"second");
    let second = one.write(update.clone()).await;
    for late in [insert, update] {
        let outcome = other.exchange(late).await;
        assert_eq!(outcome, Outcome::Differs { version: second, value: Some(b"second".to_vec()) });
    }
}

/// Values of up to a megabyte are kept whole.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn large_values_are_kept<B: Backend>(one: &Party<B>, other: &Party<B>) {
    let key = fresh("large");
    let length = one.backend.max_value_len().min(1 << 20);
    let random = |round: usize| -> Vec<u8> {
        (0..length).map(|at| (at * at * 31 + at / 7 + round).to_le_bytes()[0]).collect()
    };
    let mut version = 0;
    for round in 0..3 {
        version = one.write(write(&key, version, &random(round))).await;
        assert_eq!(other.read(&key).await, (version, Some(random(round))));
    }
}

/// Lists have each key once, in the order of bytes, whatever letters it has.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn pages_are_in_the_order_of_bytes<B: Backend>(one: &Party<B>, other: &Party<B>) {
    let root = fresh("list");
    let names =
        ["%", "%%", "*", "A", "B", "Z", "_", "\\", "a", "a b", "a%b", "a_b", "aa", "b", "ä", "\u{10ffff}"];
    let text = |name: &str| format!("{root}/{name}");
    for name in names {
        one.write(write(&Key::new(&text(name)), 0, name.as_bytes())).await;
    }
    for prefix in ["", "a", "%", "_", "a_", "\\", "*", "\u{10ffff}", "c"] {
        let mut expected: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
        expected.sort_unstable();
        for limit in [1, 3, 100] {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = other.backend.list(&text(prefix), after.as_deref(), limit).await.unwrap();
                after = page.last().map(|(key, _)| key.clone());
                let is_last = page.len() < limit;
                assert!(page.len() <= limit);
                listed.extend(page);
                if is_last {
                    break;
                }
            }
            let expected: Vec<_> =
                expected.iter().map(|name| (text(name), name.as_bytes().to_vec())).collect();
            assert_eq!(listed, expected, "{prefix} {limit}");
        }
    }
}

/// Messages reach the process that they are for, and no other.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn messages_are_heard<B: Backend>(one: &Party<B>, other: &Party<B>) {
    let (key, large) = (fresh("heard"), "x".repeat(5_000));
    let mut version = 0;
    let nonce = Id::random();
    let text = |name: &str| format!("{name} {nonce} line\nfeed 'quoted' $1 {large}");
    for (name, durable) in [("insert", true), ("durable", true), ("quick", false)] {
        let messages = vec![message(other.backend.inbox(), &text(name))];
        version = one.write(Write { durable, messages, ..write(&key, version, b"x") }).await;
    }
    let sent = one.backend.send(vec![message(other.backend.inbox(), &text("sent"))]).await;
    assert_eq!(sent.unwrap(), [0_u32; 0]);
    for name in ["insert", "durable", "quick", "sent"] {
        until(name, async || other.texts().contains(&text(name))).await;
    }
    assert!(!one.texts().iter().any(|text| text.contains(&nonce.to_string())), "heard by another process");
}

/// A write that fails sends no message.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn lost_writes_send_nothing<B: Backend>(one: &Party<B>, other: &Party<B>) {
    let (key, nonce) = (fresh("unsent"), Id::random().to_string());
    let version = one.write(write(&key, 0, b"x")).await;
    let messages = vec![message(other.backend.inbox(), &nonce)];
    for durable in [true, false] {
        for expected in [0, version + 1] {
            let lost = Write { durable, messages: messages.clone(), ..write(&key, expected, b"x") };
            assert!(matches!(one.exchange(lost).await, Outcome::Differs { .. }));
        }
    }
    let last = format!("after {nonce}");
    one.backend.send(vec![message(other.backend.inbox(), &last)]).await.unwrap();
    until("the message after", async || other.texts().contains(&last)).await;
    assert!(!other.texts().contains(&nonce), "sent by a write that was lost");
}

/// Reports that no process listens to the inbox of a backend that has ended, for a message apart and for one with a
/// write.
///
/// # Panics
/// If the backend breaks the promise.
pub async fn gone_inboxes_are_reported<B: Backend>(one: &Party<B>, ended: Party<B>) {
    let (inbox, key) = (ended.backend.inbox(), fresh("gone"));
    assert_eq!(one.backend.send(vec![message(inbox, "x")]).await.unwrap(), [0_u32; 0]);
    drop(ended);
    until("the inbox to be gone", async || {
        one.backend.send(vec![message(inbox, "x")]).await.unwrap() == [inbox]
    })
    .await;
    let mut version = 0;
    for durable in [true, true, false] {
        let messages = vec![message(inbox, "x"), message(one.backend.inbox(), "y")];
        match one.exchange(Write { durable, messages, ..write(&key, version, b"x") }).await {
            Outcome::Matched { version: next, gone } if gone == [inbox] => version = next,
            other => panic!("{other:?}"),
        }
    }
}

/// No lower bound of one process is above an upper bound that another process has read later.
///
/// # Panics
/// If the backend breaks the promise.
pub fn clocks_agree<B: Backend>(one: &Party<B>, other: &Party<B>) {
    for _ in 0..1_000 {
        for (first, second) in [(one, other), (other, one), (one, one)] {
            let (first, second) = (first.backend.time(), second.backend.time());
            assert!(first.now <= second.now + second.spread, "{first:?}, then {second:?}");
        }
    }
}
