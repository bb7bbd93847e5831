//! The embedded store: its state lives in this process.

#[cfg(feature = "_control")]
mod control;
mod described;
mod shard;

use crate::{
    background::{self, alarm::Alarm},
    clock::Timestamp,
    error::{Error, Result},
    key::Key,
    mailboxes::Mailboxes,
    once::Once,
    primitives::{Notification, Reply, Request},
    process::{PerProcess, Process},
    store::{Answering, Calling, Description, FirstKeys, KeyPage, Store},
    sync::{Mutex, lock},
};
use described::Described;
use shard::Shard;
use std::{
    fmt,
    future::ready,
    mem::forget,
    sync::{Arc, Weak},
    time::Duration,
};

const SHARDS: usize = 64;

/// A store for the locks and limits of this process only.
///
/// The state of a key disappears with its last user. A waiter costs a place in a queue, but no thread, no task and no
/// processor time. When a lease expires, the next waiter is served on time without polling.
///
/// A forked child cannot use its copy: every call returns `Misused`, and the copy looks empty.
///
/// ```
/// # use locker_runtime as locker;
/// use locker::{Locker, stores::Memory};
///
/// # fn main() -> locker::Result<()> {
/// let store = Memory::new();
/// let locker = Locker::builder().store(store.clone()).build_blocking()?;
/// let guard = locker.lock("invoice 7").acquire_blocking()?;
/// assert_eq!((store.len(), store.users()), (1, 1));
/// guard.release_blocking()?;
/// assert!(store.is_empty());
/// # Ok(()) }
/// ```
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
        static STORE: PerProcess<Memory> = PerProcess::new();
        STORE.cell().get_or_init(Memory::new).clone()
    }

    /// Returns the number of holders and waiters of all keys together.
    #[must_use]
    pub fn users(&self) -> usize {
        self.0.parts().iter().map(|shard| lock(shard).users()).sum()
    }

    /// Returns the number of keys with state.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.parts().iter().map(|shard| lock(shard).len()).sum()
    }

    /// Returns whether no key has state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn answer<'a>(&self, key: &Key, request: &Request, now: impl FnOnce() -> Timestamp) -> Calling<'a> {
        if !self.0.process.is_this() {
            let cure = "make a new one in the child";
            return Calling::answered(Err(Error::made_before_a_fork("this store was made", cure)));
        }
        #[cfg(feature = "_control")]
        if let Some(error) = self.0.control.outage() {
            return Calling::answered(Err(error));
        }
        let clock = self.0.clock.get_or_try_init(|| start_clock(&self.0));
        let now = || match request {
            Request::RateLimiter(_) => Timestamp::coarse_now(),
            _ => now(),
        };
        Calling::answered(clock.map(|()| self.0.call(key, request, self.0.here(now()))))
    }
}

/// A forked child keeps its copy for good: wakers in it would drop tasks of the parent.
impl Drop for Memory {
    fn drop(&mut self) {
        if !self.0.process.is_this() {
            forget(Arc::clone(&self.0));
        }
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
        self.answer(key, request, Timestamp::now)
    }

    fn call_at<'a>(&'a self, key: &'a Key, request: &'a Request, now: Timestamp) -> Calling<'a> {
        self.answer(key, request, || now)
    }

    fn page<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answering<'a, KeyPage> {
        let (mut first, now) = (FirstKeys::new(after, limit), self.0.here(Timestamp::now()));
        let mut notifications = Vec::new();
        for shard in self.0.parts() {
            lock(shard).list(prefix, now, &mut first, &mut notifications);
        }
        self.0.deliver(notifications);
        Box::pin(ready(Ok(first.page())))
    }

    fn describe<'a>(&'a self, prefix: &'a str, descriptions: &'a [Description]) -> Answering<'a, ()> {
        // By the callers' clock, which a test does not move on: callers tell their texts again by it.
        lock(&self.0.described).keep(prefix, descriptions, Timestamp::now());
        Box::pin(ready(Ok(())))
    }

    fn descriptions<'a>(
        &'a self,
        prefix: &'a str,
        subjects: &'a [String],
    ) -> Answering<'a, Vec<Option<String>>> {
        Box::pin(ready(Ok(lock(&self.0.described).texts(prefix, subjects, Timestamp::now()))))
    }

    fn mailboxes(&self) -> &Mailboxes {
        &self.0.mailboxes
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        None
    }

    fn fence_is_time(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    #[cfg(feature = "_control")]
    fn outage(&self, _: &Key) -> Option<Error> {
        self.0.control.outage()
    }

    #[cfg(feature = "_control")]
    fn ahead(&self) -> Duration {
        self.0.ahead()
    }
}

/// The store without its clock: callers pass the time.
#[derive(Debug)]
pub(crate) struct Shards {
    parts: [Mutex<Shard>; SHARDS],
    mailboxes: Mailboxes,
    described: Mutex<Described>,
    /// The earliest due time of all shards.
    alarm: Arc<Alarm>,
    /// Set once the clock runs. No call is served before, since no lease would expire.
    clock: Once<()>,
    process: &'static Process,
    #[cfg(feature = "_control")]
    control: control::Control,
}

impl Default for Shards {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            mailboxes: Mailboxes::default(),
            described: Mutex::default(),
            alarm: Arc::default(),
            clock: Once::new(),
            process: Process::this(),
            #[cfg(feature = "_control")]
            control: control::Control::default(),
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
        self.alarm.set(due - self.ahead());
        if !notifications.is_empty() {
            self.deliver(notifications);
        }
        reply
    }

    /// Applies everything that is due at `now`, on the clock of this store.
    fn tick(&self, now: Timestamp) {
        self.alarm.reset();
        #[cfg(feature = "_control")]
        if self.control.outage().is_some() {
            return;
        }
        for shard in &self.parts {
            let mut notifications = Vec::new();
            let mut shard = lock(shard);
            shard.tick(now, &mut notifications);
            let due = shard.next_due();
            drop(shard);
            self.alarm.set(due - self.ahead());
            self.deliver(notifications);
        }
    }

    /// Delivers notifications. A waiter without a mailbox has left the queue, or is about to.
    fn deliver(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            drop(self.mailboxes.deliver(notification));
        }
    }

    /// Returns a caller's time on the clock of this store.
    fn here(&self, now: Timestamp) -> Timestamp {
        now + self.ahead()
    }

    /// Returns how far the clock of this store is ahead of its callers' clock.
    #[cfg_attr(not(feature = "_control"), expect(clippy::unused_self, reason = "only a test moves it on"))]
    fn ahead(&self) -> Duration {
        #[cfg(feature = "_control")]
        return self.control.ahead();
        #[cfg(not(feature = "_control"))]
        Duration::ZERO
    }

    /// Returns the shards, and none in a forked child.
    fn parts(&self) -> &[Mutex<Shard>] {
        if self.process.is_this() { &self.parts } else { &[] }
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
        shards.tick(shards.here(Timestamp::now()));
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.alarm.set(Timestamp::default());
    }
}

#[cfg(shuttle)]
pub mod interleavings;
