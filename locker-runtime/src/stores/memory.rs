//! The embedded store: its state lives in this process.

mod shard;

use crate::{
    background::{self, alarm::Alarm},
    clock::Timestamp,
    error::Result,
    key::Key,
    mailboxes::Mailboxes,
    primitives::{Notification, Reply, Request},
    store::{Calling, Keys, Store},
    sync::{Mutex, lock},
};
use once_cell::sync::{Lazy, OnceCell};
use shard::Shard;
use std::{
    fmt,
    future::ready,
    sync::{Arc, Weak},
    time::Duration,
};

const SHARDS: usize = 64;

/// A store for the locks and limits of this process only.
///
/// The state of a key disappears with its last user. A waiter costs a place in a queue, but no thread, no task and no
/// processor time. When a lease expires, the next waiter is served on time without polling.
#[derive(Clone)]
pub struct Memory(Arc<Shards>);

impl Memory {
    /// Creates an empty store that shares nothing with others.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Returns the store that all lockers of this process with the URL `memory://` share.
    #[must_use]
    pub fn of_process() -> Self {
        static STORE: Lazy<Memory> = Lazy::new(Memory::new);
        STORE.clone()
    }

    /// Returns the number of holders and waiters of all keys.
    #[must_use]
    pub fn users(&self) -> usize {
        self.0.parts.iter().map(|shard| lock(shard).users()).sum()
    }

    /// Returns the number of keys with state.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.parts.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Returns whether no key has state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for Memory {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        let clock = self.0.clock.get_or_try_init(|| start_clock(&self.0));
        let now = || match request {
            Request::RateLimiter(_) => Timestamp::coarse_now(),
            _ => Timestamp::now(),
        };
        Calling::answered(clock.map(|()| self.0.call(key, request, now())))
    }

    fn keys<'a>(&'a self, prefix: &'a str) -> Keys<'a> {
        let (mut notifications, now) = (Vec::new(), Timestamp::now());
        let keys =
            self.0.parts.iter().flat_map(|shard| lock(shard).keys(prefix, now, &mut notifications)).collect();
        self.0.deliver(notifications);
        Box::pin(ready(Ok(keys)))
    }

    fn mailboxes(&self) -> &Mailboxes {
        &self.0.mailboxes
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        None
    }
}

/// The store without its clock: callers pass the time.
#[derive(Debug)]
pub(crate) struct Shards {
    parts: [Mutex<Shard>; SHARDS],
    mailboxes: Mailboxes,
    /// The earliest due time of all shards.
    alarm: Arc<Alarm>,
    /// Set once the clock runs. No call is served before, since no lease would expire.
    clock: OnceCell<()>,
}

impl Default for Shards {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            mailboxes: Mailboxes::default(),
            alarm: Arc::default(),
            clock: OnceCell::new(),
        }
    }
}

impl Shards {
    fn call(&self, key: &Key, request: &Request, now: Timestamp) -> Reply {
        let mut notifications = Vec::new();
        let mut shard = lock(self.shard(key));
        let reply = shard.step(key, request, now, &mut notifications);
        let due = shard.next_due();
        drop(shard);
        self.alarm.set(due);
        if !notifications.is_empty() {
            self.deliver(notifications);
        }
        reply
    }

    /// Applies everything that is due at `now`.
    fn tick(&self, now: Timestamp) {
        self.alarm.reset();
        for shard in &self.parts {
            let mut notifications = Vec::new();
            let mut shard = lock(shard);
            shard.tick(now, &mut notifications);
            let due = shard.next_due();
            drop(shard);
            self.alarm.set(due);
            self.deliver(notifications);
        }
    }

    /// Delivers notifications. A waiter without a mailbox has left the queue, or is about to.
    fn deliver(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            drop(self.mailboxes.deliver(notification));
        }
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        &self.parts[(key.hash_value() >> 48) as usize % SHARDS]
    }
}

fn start_clock(shards: &Arc<Shards>) -> Result<()> {
    background::ready()?;
    background::spawn(keep_time(Arc::downgrade(shards), Arc::clone(&shards.alarm)));
    Ok(())
}

/// Applies what is due, until the store is dropped.
async fn keep_time(shards: Weak<Shards>, alarm: Arc<Alarm>) {
    loop {
        alarm.due(background::sleep_from).await;
        let Some(shards) = shards.upgrade() else { return };
        shards.tick(Timestamp::now());
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.alarm.set(Timestamp::default());
    }
}

#[cfg(all(test, shuttle))]
mod interleavings;
