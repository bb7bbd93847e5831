//! The names in use, and the cap on their number.

use crate::{
    api::{Answer, Resource},
    sync::lock,
};
use locker_runtime::Admin;
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The minimum time between two listings of the names in the store, while the cap is reached.
const LIST_INTERVAL: Duration = Duration::from_millis(200);

/// The pause after a listing, as a multiple of the time that the listing took.
const PAUSE_FACTOR: u32 = 10;

/// The names that clients used at this server and that may still be in use.
#[derive(Debug)]
pub(crate) struct NameRegistry {
    admin: Admin,
    /// By resource: each name with the round in which it was last used.
    known: [Mutex<HashMap<Box<str>, u32>>; Resource::ALL.len()],
    count: AtomicUsize,
    limit: usize,
    round: AtomicU32,
    /// The time before which the names are not listed again.
    next_listing: tokio::sync::Mutex<Option<Instant>>,
}

impl NameRegistry {
    pub(crate) fn new(admin: Admin, limit: usize) -> Self {
        Self {
            admin,
            known: Default::default(),
            count: AtomicUsize::new(0),
            limit,
            round: AtomicU32::new(0),
            next_listing: tokio::sync::Mutex::default(),
        }
    }

    /// Returns `None` if the name may be used, and the refusal otherwise.
    pub(crate) async fn admit(&self, resource: Resource, name: &str) -> Option<Answer> {
        if self.try_enter(resource, name) {
            return None;
        }
        self.forget_idle().await;
        if self.try_enter(resource, name) {
            return None;
        }
        Some(Answer::too_many(format!("too many names in use: the limit is {} (--max-names)", self.limit)))
    }

    fn try_enter(&self, resource: Resource, name: &str) -> bool {
        let round = self.round.load(Ordering::Relaxed);
        let mut known = self.of(resource);
        if let Some(last_used) = known.get_mut(name) {
            *last_used = round;
            return true;
        }
        let more = |count| (count < self.limit).then_some(count + 1);
        let room = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if room {
            known.insert(name.into(), round);
        }
        room
    }

    /// Forgets the names that the store does not list. Names used since the listing was requested stay.
    async fn forget_idle(&self) {
        let (mut next, now) = (self.next_listing.lock().await, Instant::now());
        if next.is_some_and(|next| now < next) {
            return;
        }
        let round = self.round.fetch_add(1, Ordering::Relaxed);
        match self.admin.names().await {
            Ok(names) => {
                for resource in Resource::ALL {
                    self.retain(resource, round, &names);
                }
            }
            Err(error) => tracing::warn!(%error, "the store cannot list the names in use"),
        }
        *next = Some(Instant::now() + LIST_INTERVAL.max(now.elapsed() * PAUSE_FACTOR));
    }

    fn retain(&self, resource: Resource, round: u32, names: &[(String, String)]) {
        let (mut known, key_kind) = (self.of(resource), resource.key_kind());
        let in_use = |name: &str| {
            let stored = self.admin.stored_name(key_kind, name);
            names.binary_search_by(|(kind, other)| (&**kind, &**other).cmp(&(key_kind, &*stored))).is_ok()
        };
        let before = known.len();
        known.retain(|name, last_used| *last_used > round || in_use(name));
        self.count.fetch_sub(before - known.len(), Ordering::Relaxed);
        if known.capacity() > 1024 && known.len() < known.capacity() / 8 {
            known.shrink_to_fit();
        }
    }

    /// Returns the names that keys cannot spell, by the digest that replaces them in keys.
    pub(crate) fn spellings(&self, resource: Resource) -> HashMap<String, String> {
        let stored = |name: &str| match self.admin.stored_name(resource.key_kind(), name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(stored) => Some((stored, name.to_owned())),
        };
        self.of(resource).keys().filter_map(|name| stored(name)).collect()
    }

    fn of(&self, resource: Resource) -> MutexGuard<'_, HashMap<Box<str>, u32>> {
        lock(&self.known[resource as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_runtime::Locker;

    #[tokio::test]
    async fn names_that_keys_cannot_spell_count() {
        let locker = Locker::memory();
        let names = NameRegistry::new(locker.admin(), 1);
        assert_eq!(names.admit(Resource::Semaphore, "{a}").await, None);
        locker.keyed_semaphore("{a}").acquire(1, "k", Duration::MAX, Duration::ZERO).await.unwrap();
        assert_eq!(names.admit(Resource::Semaphore, "b").await.unwrap().status, 429);
        assert_eq!(names.spellings(Resource::Semaphore).into_values().collect::<Vec<_>>(), ["{a}"]);
    }

    #[tokio::test]
    async fn idle_names_make_room() {
        let locker = Locker::memory();
        let names = NameRegistry::new(locker.admin(), 2);
        for name in ["a", "b", "a"] {
            assert_eq!(names.admit(Resource::Semaphore, name).await, None);
            locker.keyed_semaphore(name).acquire(1, name, Duration::MAX, Duration::ZERO).await.unwrap();
        }
        let refused = names.admit(Resource::Event, "a").await.unwrap();
        assert_eq!(refused.status, 429);
        assert!(locker.keyed_semaphore("b").release("b").await.unwrap());
        *names.next_listing.lock().await = None;
        assert_eq!(names.admit(Resource::Event, "a").await, None);
        assert_eq!(names.count.load(Ordering::Relaxed), 2);
    }
}
