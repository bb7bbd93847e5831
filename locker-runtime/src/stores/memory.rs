//! The embedded store: state in this process, nothing to install.

mod shard;

use crate::{
    Result, background,
    clock::Timestamp,
    key::Key,
    primitives::{Push, Request},
    pushes::Pushes,
    store::{Calling, Keys, Store},
    sync::{Mutex, lock},
};
use once_cell::sync::{Lazy, OnceCell};
use shard::Shard;
use std::{
    fmt,
    future::ready,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

const SHARDS: usize = 64;

/// Locks and limits of this process only.
///
/// The state of a key disappears with its last user. Whoever waits costs a place in a queue, no thread, no task and
/// no processor time; a lease that runs out hands over at its time without anybody polling.
#[derive(Clone)]
pub struct Memory(Arc<Shards>);

impl Memory {
    /// A new, empty store that shares nothing with others.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// The store that everybody in this process shares who asks for `memory://`.
    #[must_use]
    pub fn of_process() -> Self {
        static STORE: Lazy<Memory> = Lazy::new(Memory::new);
        STORE.clone()
    }

    /// How many hold something or wait, over all keys.
    #[must_use]
    pub fn users(&self) -> usize {
        self.0.parts.iter().map(|shard| lock(shard).users()).sum()
    }

    /// How many keys have state now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.parts.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether no key has state.
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
            Request::RateLimiter(_) => Timestamp::nearly_now(),
            _ => Timestamp::now(),
        };
        Calling::answered(clock.map(|()| self.0.call(key, request, now())))
    }

    fn keys<'a>(&'a self, prefix: &'a str) -> Keys<'a> {
        let (mut pushes, now) = (Vec::new(), Timestamp::now());
        let keys = self.0.parts.iter().flat_map(|shard| lock(shard).keys(prefix, now, &mut pushes)).collect();
        self.0.deliver(pushes);
        Box::pin(ready(Ok(keys)))
    }

    fn pushes(&self) -> &Pushes {
        &self.0.pushes
    }

    fn liveness(&self) -> Option<Duration> {
        None
    }
}

/// The store without its clock: every time comes in as an argument.
#[derive(Debug)]
pub(crate) struct Shards {
    parts: [Mutex<Shard>; SHARDS],
    pushes: Pushes,
    /// The earliest time at which some shard has something due, in microseconds.
    next_due: AtomicU64,
    earlier: Arc<Notify>,
    /// Set when it runs: without it nothing is taken, since no lease would end.
    clock: OnceCell<()>,
}

impl Default for Shards {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            pushes: Pushes::default(),
            next_due: AtomicU64::new(Timestamp::NEVER.as_micros()),
            earlier: Arc::default(),
            clock: OnceCell::new(),
        }
    }
}

impl Shards {
    fn call(&self, key: &Key, request: &Request, now: Timestamp) -> crate::primitives::Reply {
        let mut pushes = Vec::new();
        let mut shard = lock(self.shard(key));
        let reply = shard.step(key, request, now, &mut pushes);
        let due = shard.next_due();
        drop(shard);
        self.announce(due);
        if !pushes.is_empty() {
            self.deliver(pushes);
        }
        reply
    }

    /// Lets everything take effect that is due at `now`.
    fn tick(&self, now: Timestamp) {
        self.next_due.store(Timestamp::NEVER.as_micros(), Ordering::SeqCst);
        for shard in &self.parts {
            let mut pushes = Vec::new();
            let mut shard = lock(shard);
            shard.tick(now, &mut pushes);
            let due = shard.next_due();
            drop(shard);
            self.next_due.fetch_min(due.as_micros(), Ordering::SeqCst);
            self.deliver(pushes);
        }
    }

    fn announce(&self, due: Timestamp) {
        let due = due.as_micros();
        if due < self.next_due.load(Ordering::SeqCst) && due < self.next_due.fetch_min(due, Ordering::SeqCst)
        {
            self.earlier.notify_one();
        }
    }

    /// A waiter that is gone has left the queue itself, or is about to.
    fn deliver(&self, pushes: Vec<Push>) {
        for push in pushes {
            drop(self.pushes.deliver(push));
        }
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        &self.parts[(key.hash_value() >> 48) as usize % SHARDS]
    }

    fn next_due(&self) -> Timestamp {
        Timestamp::from_micros(self.next_due.load(Ordering::SeqCst))
    }
}

fn start_clock(shards: &Arc<Shards>) -> Result<()> {
    background::ready()?;
    background::spawn(keep_time(Arc::downgrade(shards), Arc::clone(&shards.earlier)));
    Ok(())
}

/// Ends with the store.
async fn keep_time(shards: Weak<Shards>, earlier: Arc<Notify>) {
    while let Some(next) = shards.upgrade().map(|shards| shards.next_due()) {
        tokio::select! {
            () = earlier.notified() => continue,
            () = background::sleep_until(next) => {}
        }
        let now = Timestamp::now();
        if let Some(shards) = shards.upgrade().filter(|shards| shards.next_due() <= now) {
            shards.tick(now);
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.earlier.notify_one();
    }
}

#[cfg(all(test, shuttle))]
mod interleavings;
