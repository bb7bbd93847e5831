//! The values that this process was the last to write, until they may be removed.

use locker_cas::Version;
use locker_core::{
    clock::Timestamp,
    sync::{Mutex, lock},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// How long a value is kept after it has begun to matter no more. Longer than a process relies on a key to be without a
/// value that it has found to be so.
const KEPT: Duration = Duration::from_secs(60);

/// How many values are remembered: others are removed by a sweep.
const REMEMBERED: usize = 100_000;

/// The values to remove.
#[derive(Debug)]
pub(super) struct Removal {
    /// How much later than it was decided on a write may arrive.
    margin: Duration,
    due: Mutex<Due>,
}

#[derive(Debug, Default)]
struct Due {
    by_key: HashMap<Arc<str>, (Version, Timestamp)>,
    in_order: BTreeSet<(Timestamp, Arc<str>)>,
}

impl Due {
    fn forget(&mut self, key: &str) {
        if let Some((key, (_, at))) = self.by_key.remove_entry(key) {
            self.in_order.remove(&(at, key));
        }
    }
}

/// Returns how long after a write its value may be removed, if it matters for `lasts`. Clocks may drift apart.
pub(super) fn kept(lasts: Duration) -> Option<Duration> {
    (lasts < Duration::MAX).then(|| lasts.saturating_add(lasts / 500).saturating_add(KEPT))
}

impl Removal {
    pub(super) fn new(margin: Duration) -> Self {
        Self { margin, due: Mutex::default() }
    }

    /// Records a write of this process that has just been answered.
    pub(super) fn note(&self, key: &str, version: Version, lasts: Duration) {
        let mut due = lock(&self.due);
        due.forget(key);
        if let Some(kept) = kept(lasts)
            && due.by_key.len() < REMEMBERED
        {
            let (key, at) = (Arc::<str>::from(key), Timestamp::now() + kept + self.margin);
            due.by_key.insert(Arc::clone(&key), (version, at));
            due.in_order.insert((at, key));
        }
    }

    /// Takes out what is due at `now`.
    pub(super) fn take(&self, now: Timestamp) -> Vec<(Arc<str>, Version)> {
        let (mut due, mut taken) = (lock(&self.due), Vec::new());
        while due.in_order.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = due.in_order.pop_first() else { break };
            if let Some((version, _)) = due.by_key.remove(&key) {
                taken.push((key, version));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_due_once_and_after_their_time() {
        let removal = Removal::new(Duration::from_secs(2));
        let (started, minute) = (Timestamp::now(), Duration::from_secs(60));
        removal.note("a", 1, minute);
        removal.note("b", 2, Duration::MAX);
        removal.note("a", 3, Duration::from_secs(1));
        removal.note("c", 4, minute);
        removal.note("c", 5, Duration::MAX);
        assert_eq!(removal.take(started + KEPT + Duration::from_secs(3)), [], "too early");
        let later = Timestamp::now() + 3 * minute;
        assert_eq!(removal.take(later), [(Arc::from("a"), 3)]);
        assert_eq!(removal.take(later), []);
    }

    #[test]
    fn memory_is_bounded() {
        let removal = Removal::new(Duration::ZERO);
        for number in 0..=REMEMBERED {
            removal.note(&number.to_string(), 1, Duration::ZERO);
        }
        assert_eq!(removal.take(Timestamp::NEVER).len(), REMEMBERED);
    }
}
