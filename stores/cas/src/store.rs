//! The store on a backend: requests by key, messages, and the list of open stores.

mod catalog;
mod engine;

use crate::{
    backend::{Backend, Received},
    health::Health,
    messages,
    queues::{Gone, Queues},
    round::{Job, WAITER_TTL},
};
use catalog::Told;
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    mailboxes::Mailboxes,
    primitives::Request,
    process::PerProcess,
    store::{
        Answering, Calling, Description, KeyPage, Store,
        opening::{NetworkOptions, Opening},
    },
    sync::{Mutex, lock},
};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// The period in which all waiters of a process ask again after messages may have been lost.
const SPREAD: Duration = Duration::from_millis(100);

/// The open stores. All lockers of this process with the same URL and options share one.
static OPEN: PerProcess<Mutex<HashMap<Name, Weak<dyn Store>>>> = PerProcess::new();

/// A URL and its options.
type Name = (String, NetworkOptions);

/// Returns the open store with this URL, or opens its backend.
///
/// # Errors
/// Those of `backend`; `Unavailable` without the background thread.
pub async fn shared<B: Backend>(
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
pub struct CasStore<B> {
    pub(crate) backend: B,
    mailboxes: Mailboxes,
    pub(crate) queues: Mutex<Queues>,
    gone: Mutex<Gone>,
    /// When messages may last have been lost, in microseconds.
    gap_at: AtomicU64,
    health: Health,
    pub(crate) told: Mutex<Told>,
    command_timeout: Duration,
    this: Weak<Self>,
}

impl<B: Backend> CasStore<B> {
    /// Makes a store of a backend that is ready for calls.
    ///
    /// # Errors
    /// `Unavailable` without the background thread.
    pub fn new(backend: B, opening: &Opening) -> Result<Arc<Self>> {
        background::ready()?;
        let store = Arc::new_cyclic(|this: &Weak<Self>| Self {
            backend,
            mailboxes: Mailboxes::default(),
            queues: Mutex::default(),
            gone: Mutex::default(),
            gap_at: AtomicU64::new(0),
            health: Health::default(),
            told: Mutex::default(),
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

    pub(crate) fn receive(&self, received: Received<'_>) {
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

    fn fence_is_time(&self) -> bool {
        self.backend.fence_is_time()
    }

    fn id_prefix(&self) -> Option<u32> {
        Some(self.backend.inbox())
    }

    fn name(&self) -> &'static str {
        self.backend.name()
    }
}

impl<B: Backend> fmt::Debug for CasStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.backend, f)
    }
}
