//! How many names are in use.

use crate::{
    calls::{Answer, Kind},
    carry_out::word,
};
use locker_runtime::Admin;
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// How often the store is asked which names are still in use, when as many as may be are thought to be.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The part of the time, as its inverse, that a store may be busy with that.
const SELDOM: u32 = 10;

/// The names that this server has been called with, and that may be in use since.
#[derive(Debug)]
pub struct Names {
    known: [Mutex<HashMap<Box<str>, u32>>; Kind::ALL.len()],
    count: AtomicUsize,
    most: usize,
    round: AtomicU32,
    /// The store is not asked again before.
    rest: tokio::sync::Mutex<Option<Instant>>,
}

impl Names {
    /// At most so many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            known: Default::default(),
            count: AtomicUsize::new(0),
            most,
            round: AtomicU32::new(0),
            rest: tokio::sync::Mutex::default(),
        }
    }

    /// `None` when the name may be used; else what to answer.
    pub(crate) async fn admit(&self, door: &Admin, kind: Kind, name: &str) -> Option<Answer> {
        if self.enter(kind, name) {
            return None;
        }
        self.forget_idle(door).await;
        if self.enter(kind, name) {
            return None;
        }
        Some(Answer::too_many(format!("{} names are in use, as many as may", self.most)))
    }

    fn enter(&self, kind: Kind, name: &str) -> bool {
        let round = self.round.load(Ordering::Relaxed);
        let mut known = self.of(kind);
        if let Some(seen) = known.get_mut(name) {
            *seen = round;
            return true;
        }
        let more = |count| (count < self.most).then_some(count + 1);
        let room = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if room {
            known.insert(name.into(), round);
        }
        room
    }

    /// Names that came after the question was sent stay, whatever the answer.
    async fn forget_idle(&self, door: &Admin) {
        let (mut rest, asked) = (self.rest.lock().await, Instant::now());
        if rest.is_some_and(|rest| asked < rest) {
            return;
        }
        let before = self.round.fetch_add(1, Ordering::Relaxed);
        match door.names().await {
            Ok(names) => {
                for kind in Kind::ALL {
                    self.keep(door, kind, before, &names);
                }
            }
            Err(error) => tracing::warn!(%error, "the names in use cannot be listed"),
        }
        *rest = Some(Instant::now() + ASK_EVERY.max(asked.elapsed() * SELDOM));
    }

    fn keep(&self, door: &Admin, kind: Kind, before: u32, names: &[(String, String)]) {
        let (mut known, word) = (self.of(kind), word(kind));
        let used = |name: &str| {
            let stored = door.stored_name(word, name);
            let place = names.binary_search_by(|(kind, other)| (&**kind, &**other).cmp(&(word, &*stored)));
            place.is_ok()
        };
        let had = known.len();
        known.retain(|name, seen| *seen > before || used(name));
        self.count.fetch_sub(had - known.len(), Ordering::Relaxed);
        if known.capacity() > 1024 && known.len() < known.capacity() / 8 {
            known.shrink_to_fit();
        }
    }

    /// The names of a kind that keys cannot spell, by what stands for them there.
    pub(crate) fn respelt(&self, door: &Admin, kind: Kind) -> HashMap<String, String> {
        let stored = |name: &str| match door.stored_name(word(kind), name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(stored) => Some((stored, name.to_owned())),
        };
        self.of(kind).keys().filter_map(|name| stored(name)).collect()
    }

    fn of(&self, kind: Kind) -> MutexGuard<'_, HashMap<Box<str>, u32>> {
        self.known[kind as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_runtime::Locker;

    #[tokio::test]
    async fn names_that_keys_cannot_spell_are_known_to_be_in_use() {
        let locker = Locker::memory();
        let (door, names) = (locker.admin(), Names::new(1));
        assert_eq!(names.admit(&door, Kind::Semaphore, "{a}").await, None);
        locker.keyed_semaphore("{a}").acquire(1, "k", Duration::MAX, Duration::ZERO).await.unwrap();
        assert_eq!(names.admit(&door, Kind::Semaphore, "b").await.unwrap().status, 429);
        assert_eq!(names.respelt(&door, Kind::Semaphore).into_values().collect::<Vec<_>>(), ["{a}"]);
    }

    #[tokio::test]
    async fn names_that_are_idle_make_room() {
        let locker = Locker::memory();
        let (door, names) = (locker.admin(), Names::new(2));
        for name in ["a", "b", "a"] {
            assert_eq!(names.admit(&door, Kind::Semaphore, name).await, None);
            locker.keyed_semaphore(name).acquire(1, name, Duration::MAX, Duration::ZERO).await.unwrap();
        }
        let refused = names.admit(&door, Kind::Event, "a").await.unwrap();
        assert_eq!(refused.status, 429);
        assert!(locker.keyed_semaphore("b").release("b").await.unwrap());
        *names.rest.lock().await = None;
        assert_eq!(names.admit(&door, Kind::Event, "a").await, None);
        assert_eq!(names.count.load(Ordering::Relaxed), 2);
    }
}
