//! What this process remembers: the requests at each key, and the inboxes without a process.

use super::{
    backend::Inbox,
    round::{Job, Known},
};
use crate::{clock::Timestamp, key::Key};
use std::{collections::HashMap, mem::take, time::Duration};

/// How many values this process remembers of keys without a request.
const REMEMBERED: usize = 10_000;

/// The maximum of bytes of a value that is remembered without a request.
const REMEMBERED_LEN: usize = 4 * 1024;

/// How long an inbox is taken to be without a process after a message to it failed. Its process may only replace its
/// connection, and until then its waiters are passed over.
const GONE_FOR: Duration = Duration::from_secs(1);

/// The requests at one key.
#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<Job>,
    /// Whether a task carries them out.
    is_served: bool,
    known: Option<Known>,
}

impl Queue {
    /// Returns whether something about the key is known that saves a request or that only time tells.
    fn is_needed(&self) -> bool {
        self.known.as_ref().is_some_and(Known::has_value) || self.is_observing()
    }

    /// Returns whether the end of a promise is awaited that was seen first some time ago. Without that memory, its time
    /// would begin anew.
    fn is_observing(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.observed.has_promises())
    }
}

/// The requests at all keys.
#[derive(Debug, Default)]
pub(super) struct Queues {
    by_key: HashMap<Key, Queue, foldhash::fast::RandomState>,
    /// The number of keys from which on those without a request are forgotten.
    sweep_at: usize,
}

impl Queues {
    /// Adds a request. Returns whether a task must be started for it.
    pub(super) fn add(&mut self, key: &Key, job: Job) -> bool {
        if !self.by_key.contains_key(key) {
            self.forget_idle();
        }
        let queue = self.by_key.entry(key.clone()).or_default();
        queue.jobs.push(job);
        !std::mem::replace(&mut queue.is_served, true)
    }

    /// Returns the requests at a key and its value. Without requests, the task ends.
    pub(super) fn take(&mut self, key: &Key) -> Option<(Vec<Job>, Option<Known>)> {
        let queue = self.by_key.get_mut(key)?;
        if queue.jobs.is_empty() {
            queue.is_served = false;
            if let Some(known) = queue.known.as_mut().filter(|known| known.stored.body.len() > REMEMBERED_LEN)
            {
                known.forget_value();
            }
            if !queue.is_needed() {
                self.by_key.remove(key);
            }
            return None;
        }
        Some((take(&mut queue.jobs), queue.known.take()))
    }

    pub(super) fn put_back(&mut self, key: &Key, known: Option<Known>, first: Vec<Job>) {
        let Some(queue) = self.by_key.get_mut(key) else { return };
        queue.known = known;
        queue.jobs.splice(0..0, first);
    }

    /// Returns the present time of a key whose clock is observed, if this process has seen the value with this nonce.
    pub(super) fn observed_now(&self, key: &str, nonce: u64) -> Option<Timestamp> {
        let known = self.by_key.get(&Key::new(key))?.known.as_ref()?;
        (known.stored.nonce == nonce).then(|| known.observed.now(Timestamp::now()))
    }

    fn forget_idle(&mut self) {
        if self.by_key.len() >= self.sweep_at.max(REMEMBERED) {
            self.by_key.retain(|_, queue| queue.is_served || queue.is_observing());
            self.sweep_at = 2 * self.by_key.len();
        }
    }
}

/// The inboxes that no process listens to, with the time until which that is believed.
#[derive(Debug, Default)]
pub(super) struct Gone(HashMap<Inbox, Timestamp>);

impl Gone {
    pub(super) fn add(&mut self, inboxes: &[Inbox]) {
        let until = Timestamp::now() + GONE_FOR;
        self.0.extend(inboxes.iter().map(|inbox| (*inbox, until)));
    }

    pub(super) fn list(&mut self) -> Vec<Inbox> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let now = Timestamp::now();
        self.0.retain(|_, until| *until > now);
        self.0.keys().copied().collect()
    }
}
