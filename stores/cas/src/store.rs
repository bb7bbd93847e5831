//! Stores that run the steps of [`primitives`](crate::primitives) in this process, on values that are kept elsewhere:
//! read a value, run the step, write the value back if nobody has changed it, send the notifications.
//!
//! The floors of this folder, from the top. Each file imports only from the lines below its own:
//!
//! 1. `fake`: a backend for tests; `cas`: the store; `engine`, `catalog`: its parts.
//! 2. `round`
//! 3. `entry`
//! 4. `messages`, `health`, `ticker`: the clock of a store that has none, and who moves it on
//! 5. `backend`, `ticked`: that clock as one process knows it
//! 6. `time`

#[cfg_attr(
    not(all(feature = "postgres", feature = "etcd")),
    allow(dead_code, reason = "each backend uses a part of the trait")
)]
mod backend;
mod catalog;
#[cfg(test)]
pub(crate) mod contract;
mod engine;
mod entry;
#[cfg(any(test, feature = "_fake"))]
pub(crate) mod fake;
mod health;
mod messages;
mod queues;
mod round;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "etcd", feature = "_fake"))]
pub(crate) mod ticked;
#[cfg(any(test, feature = "etcd", feature = "_fake"))]
pub(crate) mod ticker;
mod time;

#[cfg_attr(
    not(all(feature = "postgres", feature = "etcd")),
    allow(unused_imports, reason = "each backend uses a part of the trait")
)]
pub(crate) use backend::{
    Backend, Draw, Epoch, Holder, Inbox, Message, Outcome, Received, Version, Write, random_inbox,
};
use health::Health;
use locker_core::store::opening::{NetworkOptions, Opening};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    mailboxes::Mailboxes,
    primitives::Request,
    process::PerProcess,
    store::{Answering, Calling, Description, KeyPage, Store},
    sync::{Mutex, lock},
};
use queues::{Gone, Queues};
use round::{Job, WAITER_TTL};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
pub(crate) use time::Time;
use tokio::sync::oneshot;
#[cfg(feature = "etcd")]
pub(crate) use {
    entry::Stamped,
    time::{Basis, Found},
};

/// The period in which all waiters of a process ask again after messages may have been lost.
const SPREAD: Duration = Duration::from_millis(100);

/// The open stores. All lockers of this process with the same URL and options share one.
static OPEN: PerProcess<Mutex<HashMap<Name, Weak<dyn Store>>>> = PerProcess::new();

/// A URL and its options.
type Name = (String, NetworkOptions);

/// Returns the open store with this URL, or opens its backend.
pub(crate) async fn shared<B: Backend>(
    url: &str,
    opening: &Opening,
    backend: impl Future<Output = Result<B>>,
) -> Result<Arc<dyn Store>> {
    let open = OPEN.cell().get_or_init(Mutex::default);
    let name = (url.to_owned(), opening.network.clone());
    if let Some(store) = lock(open).get(&name).and_then(Weak::upgrade) {
        return Ok(store);
    }
    let store: Arc<dyn Store> = CasStore::new(backend.await?, opening)?;
    let mut open = lock(open);
    // Another task may have been faster.
    if let Some(store) = open.get(&name).and_then(Weak::upgrade) {
        return Ok(store);
    }
    open.retain(|_, store| store.strong_count() > 0);
    open.insert(name, Arc::downgrade(&store));
    Ok(store)
}

/// A store on values that can be compared and set.
pub(crate) struct CasStore<B> {
    backend: B,
    mailboxes: Mailboxes,
    queues: Mutex<Queues>,
    gone: Mutex<Gone>,
    /// When messages may last have been lost, in microseconds.
    gap_at: AtomicU64,
    health: Health,
    command_timeout: Duration,
    this: Weak<Self>,
}

impl<B: Backend> CasStore<B> {
    /// Makes a store of a backend that is ready for calls.
    pub(crate) fn new(backend: B, opening: &Opening) -> Result<Arc<Self>> {
        background::ready()?;
        let store = Arc::new_cyclic(|this: &Weak<Self>| Self {
            backend,
            mailboxes: Mailboxes::default(),
            queues: Mutex::default(),
            gone: Mutex::default(),
            gap_at: AtomicU64::new(0),
            health: Health::default(),
            command_timeout: opening.network.command_timeout,
            this: this.clone(),
        });
        let receiver = Arc::downgrade(&store);
        store.backend.listen(Box::new(move |received| {
            if let Some(store) = receiver.upgrade() {
                store.receive(received);
            }
        }));
        Ok(store)
    }

    fn receive(&self, received: Received<'_>) {
        match received {
            Received::Text(text) => {
                let notifications = messages::read(text).unwrap_or_default();
                if let Some(first) = notifications.first() {
                    lock(&self.queues).told(&first.key);
                }
                for notification in notifications {
                    self.deliver(notification);
                }
            }
            Received::Gap => {
                self.gap_at.store(Timestamp::now().as_micros(), Ordering::Release);
                self.mailboxes.wake_within(SPREAD);
            }
        }
    }

    /// When messages may last have been lost.
    fn last_gap(&self) -> Timestamp {
        Timestamp::from_micros(self.gap_at.load(Ordering::Acquire))
    }
}

impl<B: Backend> Store for CasStore<B> {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        Calling::Pending(Box::pin(async move {
            let (answer, reply) = oneshot::channel();
            let job = Job { request: request.clone(), answer: Some(answer), only_at: None };
            self.enqueue(key, job);
            reply.await.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Unavailable, "the store has failed within a request").unknown())
            })
        }))
    }

    fn page<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answering<'a, KeyPage> {
        Box::pin(self.list(prefix, after, limit))
    }

    fn describe<'a>(&'a self, prefix: &'a str, descriptions: &'a [Description]) -> Answering<'a, ()> {
        Box::pin(self.keep_texts(prefix, descriptions))
    }

    fn descriptions<'a>(
        &'a self,
        prefix: &'a str,
        subjects: &'a [String],
    ) -> Answering<'a, Vec<Option<String>>> {
        Box::pin(self.texts(prefix, subjects))
    }

    fn mailboxes(&self) -> &Mailboxes {
        &self.mailboxes
    }

    fn outage(&self, _key: &Key) -> Option<Error> {
        self.health.outage()
    }

    fn has_replied_since(&self, _key: &Key, time: Timestamp) -> bool {
        self.health.has_answered_since(time)
    }

    fn expected_rtt(&self, _key: &Key) -> Duration {
        self.health.expected_rtt()
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        Some(WAITER_TTL)
    }

    fn id_prefix(&self) -> Option<u32> {
        Some(self.backend.inbox())
    }
}

impl<B: Backend> fmt::Debug for CasStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.backend, f)
    }
}
