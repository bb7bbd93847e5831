//! When the server is asked about waiters: messages may get lost, and a holder may die.
//!
//! One call asks for all waiters of this process at one name, so that waiting costs by names and not by waiters.

use super::{Redis, lock, lock::Run, script::Answer};
use crate::{
    background,
    clock::Timestamp,
    id::{Id, IdSet},
    key::Key,
    primitives::GRANT_WINDOW,
    sync::{Mutex, lock as guard},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::sync::Notify;

/// How many waiters of a name are looked for in one call.
const SAMPLE: usize = 64;

/// The names that waiters of this process are in line at.
#[derive(Debug, Default)]
pub(super) struct Rechecks {
    names: Mutex<Names>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Names {
    by_key: HashMap<Key, Name>,
    /// The names by when they are due; the numbers only tell those apart that are due together.
    due: BTreeMap<(Timestamp, u64), Key>,
    next_number: u64,
    is_running: bool,
}

#[derive(Debug)]
struct Name {
    waiters: IdSet,
    due: (Timestamp, u64),
    /// How many looks there have been: each asks for other waiters.
    looks: usize,
}

impl Rechecks {
    /// Whether waiters of this process are, or were a moment ago, in line at `key`.
    pub(super) fn knows(&self, key: &Key) -> bool {
        guard(&self.names).by_key.contains_key(key)
    }

    /// The longest time between two looks: longer where there are many names.
    pub(super) fn interval(&self) -> Duration {
        let names = u32::try_from(guard(&self.names).by_key.len()).unwrap_or(u32::MAX);
        Duration::from_millis(100).saturating_mul(names).clamp(GRANT_WINDOW, Redis::WAITER_TTL / 3)
    }

    /// A waiter is in line at `key`, which is to be looked at then, or earlier if another one wants that. Says whether
    /// [`run`](Self::run) has to be started.
    pub(super) fn add(&self, key: &Key, id: Id, at: Timestamp) -> bool {
        let mut names = guard(&self.names);
        let is_new = !names.by_key.contains_key(key);
        let name = names.by_key.entry(key.clone()).or_insert_with(|| Name {
            waiters: IdSet::default(),
            due: (Timestamp::NEVER, 0),
            looks: 0,
        });
        name.waiters.insert(id);
        // One that is being looked at has no time.
        if is_new || (name.due.0 != Timestamp::NEVER && at < name.due.0) {
            names.put(key, at);
            self.earlier.notify_one();
        }
        !std::mem::replace(&mut names.is_running, true)
    }

    /// The members of a run are in line no more.
    pub(super) fn forget(&self, key: &Key, run: &Run) {
        if let Some(name) = guard(&self.names).by_key.get_mut(key) {
            for member in run.members() {
                name.waiters.remove(&member.id);
            }
        }
    }

    /// Takes out some of the waiters that still wait at `key`; `None` if there are none, and the name is forgotten.
    pub(super) fn sample(&self, key: &Key, waits: impl Fn(Id) -> bool) -> Option<Vec<Id>> {
        let mut names = guard(&self.names);
        let name = names.by_key.get_mut(key)?;
        name.waiters.retain(|id| waits(*id));
        if name.waiters.is_empty() {
            names.by_key.remove(key);
            // The task ends with the last one.
            self.earlier.notify_one();
            return None;
        }
        if name.waiters.capacity() > 1024 && name.waiters.len() < name.waiters.capacity() / 8 {
            name.waiters.shrink_to_fit();
        }
        let from = name.looks * SAMPLE % name.waiters.len();
        name.looks += 1;
        let count = SAMPLE.min(name.waiters.len());
        let sample: Vec<_> = name.waiters.iter().cycle().skip(from).take(count).copied().collect();
        for id in &sample {
            name.waiters.remove(id);
        }
        Some(sample)
    }

    /// Those of a sample that are to be looked for again. The others are, once they have other places.
    pub(super) fn keep(&self, key: &Key, sample: impl Iterator<Item = Id>) {
        if let Some(name) = guard(&self.names).by_key.get_mut(key) {
            name.waiters.extend(sample);
        }
    }

    /// A name was looked at, and is due again then.
    pub(super) fn again(&self, key: &Key, at: Timestamp) {
        guard(&self.names).put(key, at);
        self.earlier.notify_one();
    }

    /// Looks at the names when they are due, as long as there are any.
    pub(super) async fn run(self: Arc<Self>, store: Weak<Redis>) {
        let rechecks = self;
        loop {
            let next = {
                let mut names = guard(&rechecks.names);
                if names.by_key.is_empty() {
                    names.is_running = false;
                    return;
                }
                names.due.first_key_value().map_or(Timestamp::NEVER, |((at, _), _)| *at)
            };
            tokio::select! {
                () = rechecks.earlier.notified() => {}
                () = background::sleep_until(next) => {
                    let Some(store) = store.upgrade() else { return };
                    for key in guard(&rechecks.names).take(Timestamp::now()) {
                        let store = Arc::clone(&store);
                        background::spawn(async move { store.look(&key).await });
                    }
                }
            }
        }
    }
}

impl Names {
    fn put(&mut self, key: &Key, at: Timestamp) {
        let Some(name) = self.by_key.get_mut(key) else { return };
        self.due.remove(&name.due);
        self.next_number += 1;
        name.due = (at, self.next_number);
        self.due.insert(name.due, key.clone());
    }

    /// The names that are due; they have no time until they are looked at.
    fn take(&mut self, now: Timestamp) -> Vec<Key> {
        let later = self.due.split_off(&(now, u64::MAX));
        let due: Vec<_> = std::mem::replace(&mut self.due, later).into_values().collect();
        for key in &due {
            if let Some(name) = self.by_key.get_mut(key) {
                name.due = (Timestamp::NEVER, 0);
            }
        }
        due
    }
}

/// When to look next: when the holder may be gone, or soon where clients take part that send no messages.
pub(super) fn next(answer: &Answer, interval: Duration) -> Timestamp {
    let foreign = lock::is_shared_with_foreigners(answer);
    let interval =
        if foreign { Duration::from_millis(50 + u64::from(Id::local().jitter(51))) } else { interval };
    Timestamp::now() + lock::held_for(answer).saturating_add(Duration::from_millis(1)).min(interval)
}

/// When a waiter asks for itself, in case that all else fails: together once in 100 ms at most.
pub(super) fn own(waiters: usize) -> Duration {
    let waiters = u32::try_from(waiters).unwrap_or(u32::MAX);
    Duration::from_millis(100).saturating_mul(waiters).max(Duration::from_secs(60))
}

#[cfg(test)]
mod tests;
