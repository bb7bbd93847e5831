//! The schedule of rechecks: calls that ask the server about waiters, because messages may be lost and holders may die.
//!
//! One call rechecks all waiters of this process at one key, so that the cost of waiting depends on the number of keys
//! and not of waiters.

use crate::{
    codec::lock::{Run, held_for, is_shared_with_foreigners},
    script::{ScriptReply, WAITER_TTL},
};
use locker_core::{
    background,
    clock::Timestamp,
    id::{Id, IdSet},
    key::Key,
    primitives::GRANT_WINDOW,
    sync::{Mutex, lock},
};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};
use tokio::sync::Notify;

/// The maximum number of waiters whose places one call checks.
const SAMPLE: usize = 64;

/// The keys at which waiters of this process queue.
#[derive(Debug, Default)]
pub(crate) struct Rechecks {
    schedule: Mutex<Schedule>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Schedule {
    by_key: HashMap<Key, Entry>,
    /// The keys by due time. The numbers tell keys with the same due time apart.
    due: BTreeMap<(Timestamp, u64), Key>,
    next_number: u64,
    is_running: bool,
}

#[derive(Debug)]
struct Entry {
    waiters: IdSet,
    due: (Timestamp, u64),
    /// The number of rechecks so far. Each of them checks other waiters.
    count: usize,
    /// The number of waiters to check soon, because others have lost their places.
    suspect: usize,
}

impl Rechecks {
    /// Returns whether waiters of this process queue at `key`, or did a moment ago.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        lock(&self.schedule).by_key.contains_key(key)
    }

    /// Returns the maximum time between two rechecks of a key, which grows with the number of keys.
    pub(crate) fn interval(&self) -> Duration {
        let keys = u32::try_from(lock(&self.schedule).by_key.len()).unwrap_or(u32::MAX);
        Duration::from_millis(20).saturating_mul(keys).clamp(GRANT_WINDOW, WAITER_TTL / 3)
    }

    /// Adds a waiter at `key`, and schedules the recheck at `at` or earlier. Returns whether the task that calls
    /// [`due`](Self::due) has to be started.
    pub(crate) fn add(&self, key: &Key, id: Id, at: Timestamp) -> bool {
        let mut schedule = lock(&self.schedule);
        let is_new = !schedule.by_key.contains_key(key);
        let entry = schedule.by_key.entry(key.clone()).or_insert_with(|| Entry {
            waiters: IdSet::default(),
            due: (Timestamp::NEVER, 0),
            count: 0,
            suspect: 0,
        });
        entry.waiters.insert(id);
        // A key has no due time during its recheck.
        if is_new || (entry.due.0 != Timestamp::NEVER && at < entry.due.0) {
            schedule.put(key, at);
            self.earlier.notify_one();
        }
        !std::mem::replace(&mut schedule.is_running, true)
    }

    /// Removes the members of a run, which are no longer in the queue.
    pub(crate) fn forget(&self, key: &Key, run: &Run) {
        if let Some(entry) = lock(&self.schedule).by_key.get_mut(key) {
            for member in run.members() {
                entry.waiters.remove(&member.id);
            }
        }
    }

    /// Takes some of the waiters at `key` that still wait. Removes the key and returns `None` if there are none.
    pub(crate) fn sample(&self, key: &Key, waits: impl Fn(Id) -> bool) -> Option<Vec<Id>> {
        let mut schedule = lock(&self.schedule);
        let Entry { waiters, count, .. } = schedule.by_key.get_mut(key)?;
        waiters.retain(|id| waits(*id));
        if waiters.is_empty() {
            schedule.by_key.remove(key);
            // The task ends with the last key.
            self.earlier.notify_one();
            return None;
        }
        if waiters.capacity() > 1024 && waiters.len() < waiters.capacity() / 8 {
            waiters.shrink_to_fit();
        }
        let from = *count * SAMPLE % waiters.len();
        *count += 1;
        let size = SAMPLE.min(waiters.len());
        let sample: Vec<_> = waiters.iter().cycle().skip(from).take(size).copied().collect();
        for id in &sample {
            waiters.remove(id);
        }
        Some(sample)
    }

    /// Puts back a sample that could not be checked.
    pub(crate) fn put_back(&self, key: &Key, sample: Vec<Id>) {
        if let Some(entry) = lock(&self.schedule).by_key.get_mut(key) {
            entry.waiters.extend(sample);
        }
    }

    /// Puts back a sample that was checked, except for the waiters that have lost their places: they come back with new
    /// ones. Returns whether the next recheck should follow soon, which is the case until all others are checked.
    pub(crate) fn checked(&self, key: &Key, sample: &[Id], missing: &[Id]) -> bool {
        let mut schedule = lock(&self.schedule);
        let Some(entry) = schedule.by_key.get_mut(key) else { return false };
        entry.waiters.extend(sample.iter().filter(|id| !missing.contains(id)));
        entry.suspect = match missing {
            [] => entry.suspect.saturating_sub(sample.len()),
            _ => entry.waiters.len(),
        };
        entry.suspect > 0
    }

    /// Schedules the next recheck of a key.
    pub(crate) fn schedule(&self, key: &Key, at: Timestamp) {
        lock(&self.schedule).put(key, at);
        self.earlier.notify_one();
    }

    /// Waits until a key is due. Returns `false` if there are no keys: the calling task must then end.
    pub(crate) async fn due(&self) -> bool {
        loop {
            let next = {
                let mut schedule = lock(&self.schedule);
                if schedule.by_key.is_empty() {
                    schedule.is_running = false;
                    return false;
                }
                schedule.due.first_key_value().map_or(Timestamp::NEVER, |((at, _), _)| *at)
            };
            tokio::select! {
                () = self.earlier.notified() => {}
                () = background::sleep_until(next) => return true,
            }
        }
    }

    /// Takes the keys that are due. They have no due time until [`schedule`](Self::schedule) is called.
    pub(crate) fn take_due(&self) -> Vec<Key> {
        lock(&self.schedule).take(Timestamp::now())
    }
}

impl Schedule {
    fn put(&mut self, key: &Key, at: Timestamp) {
        let Some(entry) = self.by_key.get_mut(key) else { return };
        self.due.remove(&entry.due);
        self.next_number += 1;
        entry.due = (at, self.next_number);
        self.due.insert(entry.due, key.clone());
    }

    fn take(&mut self, now: Timestamp) -> Vec<Key> {
        let later = self.due.split_off(&(now, u64::MAX));
        let due: Vec<_> = std::mem::replace(&mut self.due, later).into_values().collect();
        for key in &due {
            if let Some(entry) = self.by_key.get_mut(key) {
                entry.due = (Timestamp::NEVER, 0);
            }
        }
        due
    }
}

/// Returns the time of the next recheck: when the holder may be gone, or soon if other clients use the lock without
/// sending messages.
pub(crate) fn next(reply: &ScriptReply, interval: Duration) -> Timestamp {
    let foreign = is_shared_with_foreigners(reply);
    let interval = if foreign {
        Duration::from_millis(50 + u64::from(Id::local_of(Id::ZERO).jitter(51)))
    } else {
        interval
    };
    Timestamp::now() + held_for(reply).saturating_add(Duration::from_millis(1)).min(interval)
}

/// Returns when a waiter sends its own request again, in case that all else fails. All waiters together do so at most
/// once in 100 ms.
pub(crate) fn own_interval(waiters: usize) -> Duration {
    let waiters = u32::try_from(waiters).unwrap_or(u32::MAX);
    Duration::from_millis(100).saturating_mul(waiters).max(Duration::from_secs(60))
}

#[cfg(test)]
mod tests;
