//! The names in use, and the cap on their number.

use crate::{
    api::{Answer, Resource},
    sync::lock,
};
use locker_runtime::{Admin, Key, Result};
use std::{
    borrow::Cow,
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The minimum time between two listings of the names in the store, near the cap.
const LIST_INTERVAL: Duration = Duration::from_millis(200);

/// The pause after a listing, as a multiple of the time that the listing took.
const PAUSE_FACTOR: u32 = 10;

/// The longest pause after a listing: one that took long may have waited for an outage to end.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// How long a call waits at most for a listing that may make room for its name.
const MAX_LISTING_WAIT: Duration = Duration::from_secs(1);

/// The names that clients used at this server and that may still be in use.
///
/// Names that have become idle are forgotten by a listing of the store. It runs in the background and starts when nine
/// tenths of the cap are in use, so that calls rarely wait for it.
#[derive(Debug)]
pub(crate) struct NameRegistry {
    admin: Admin,
    /// By resource: each name with the round in which it was last used.
    known: [Mutex<HashMap<Box<str>, u32>>; Resource::ALL.len()],
    count: AtomicUsize,
    limit: usize,
    round: AtomicU32,
    listing: Mutex<Listing>,
    /// Notified at the end of each listing.
    listed: Notify,
}

/// The listing of the names in the store.
#[derive(Debug, Default)]
struct Listing {
    is_running: bool,
    /// The time before which the names are not listed again.
    next: Option<Instant>,
}

impl NameRegistry {
    pub(crate) fn new(admin: Admin, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            admin,
            known: Default::default(),
            count: AtomicUsize::new(0),
            limit,
            round: AtomicU32::new(0),
            listing: Mutex::default(),
            listed: Notify::new(),
        })
    }

    /// Returns how many names may be in use.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns `None` if the name may be used, and the refusal otherwise. If the cap is reached, waits for the end of a
    /// listing, but no longer than `maxwait` and a second.
    ///
    /// # Cancel safety
    /// Cancel safe: the listing goes on.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        resource: Resource,
        name: &str,
        maxwait: Duration,
    ) -> Option<Answer> {
        if self.try_enter(resource, name) {
            return None;
        }
        // Boxed, because all other waiting calls would reserve space for it.
        Box::pin(self.wait_for_listing(maxwait.min(MAX_LISTING_WAIT))).await;
        if self.try_enter(resource, name) {
            return None;
        }
        Some(Answer::too_many(format!("too many names in use: the limit is {} (--max-names)", self.limit)))
    }

    fn try_enter(self: &Arc<Self>, resource: Resource, name: &str) -> bool {
        let mut known = self.of(resource);
        if let Some(last_used) = known.get_mut(name) {
            *last_used = self.round.load(Ordering::Relaxed);
            return true;
        }
        let more = |count| (count < self.limit).then_some(count + 1);
        let before = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // Before the name gets its round: the listing may precede its first request to the store.
        if before.is_ok_and(|count| count + 1 >= self.limit - self.limit / 10) {
            self.start_listing();
        }
        if before.is_ok() {
            known.insert(name.into(), self.round.load(Ordering::Relaxed));
        }
        before.is_ok()
    }

    /// Waits until a listing ends. Returns at once if none is due.
    async fn wait_for_listing(self: &Arc<Self>, patience: Duration) {
        let mut listed = pin!(self.listed.notified());
        listed.as_mut().enable();
        if self.start_listing() {
            // Either result means that the wait is over.
            tokio::time::timeout(patience, listed).await.ok();
        }
    }

    /// Starts a listing in the background if one is due. Returns `false` if none is running.
    fn start_listing(self: &Arc<Self>) -> bool {
        let mut listing = lock(&self.listing);
        if !listing.is_running {
            if listing.next.is_some_and(|next| Instant::now() < next) {
                return false;
            }
            listing.is_running = true;
            let (registry, round) = (self.clone(), self.round.fetch_add(1, Ordering::Relaxed));
            tokio::spawn(async move { registry.forget_idle(round).await });
        }
        true
    }

    /// Forgets the names that the store does not list. Names used since the listing was requested stay.
    async fn forget_idle(&self, round: u32) {
        let started = Instant::now();
        match self.names_in_use().await {
            Ok(names) => {
                for resource in Resource::ALL {
                    self.retain(resource, round, &names);
                }
            }
            Err(error) => tracing::warn!(%error, "the store cannot list the names in use"),
        }
        let pause = (started.elapsed() * PAUSE_FACTOR).clamp(LIST_INTERVAL, MAX_PAUSE);
        let next = Some(Instant::now() + pause);
        *lock(&self.listing) = Listing { is_running: false, next };
        self.listed.notify_waiters();
    }

    /// Returns the names in use as kind and name, sorted. The locks by key among them are those that are known here:
    /// they have no names, and the keys of other prefixes are in no list.
    async fn names_in_use(&self) -> Result<Vec<(String, String)>> {
        let mut names = self.admin.names().await?;
        let keys: Vec<_> = self.of(Resource::LockByKey).keys().map(|key| Key::new(key)).collect();
        let seen = self.admin.inspect_all(&keys).await?;
        let used = keys.iter().zip(seen).filter(|(_, seen)| seen.is_some());
        names.extend(used.map(|(key, _)| (Resource::LockByKey.key_kind().to_owned(), key.to_string())));
        names.sort_unstable();
        Ok(names)
    }

    fn retain(&self, resource: Resource, round: u32, names: &[(String, String)]) {
        let (mut known, key_kind) = (self.of(resource), resource.key_kind());
        let in_use = |name: &str| {
            let stored = self.stored(resource, name);
            names.binary_search_by(|(kind, other)| (&**kind, &**other).cmp(&(key_kind, &*stored))).is_ok()
        };
        let before = known.len();
        known.retain(|name, last_used| *last_used > round || in_use(name));
        self.count.fetch_sub(before - known.len(), Ordering::Relaxed);
        if known.capacity() > 1024 && known.len() < known.capacity() / 8 {
            known.shrink_to_fit();
        }
    }

    /// Returns whether the name is in use as far as this server knows.
    pub(crate) fn knows(&self, resource: Resource, name: &str) -> bool {
        self.of(resource).contains_key(name)
    }

    /// Returns the names that keys cannot spell, by the digest that replaces them in keys.
    pub(crate) fn spellings(&self, resource: Resource) -> HashMap<String, String> {
        let stored = |name: &str| match self.stored(resource, name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(stored) => Some((stored, name.to_owned())),
        };
        self.of(resource).keys().filter_map(|name| stored(name)).collect()
    }

    /// Returns the name that this digest replaces in keys, if clients have used it at this server.
    pub(crate) fn spelling(&self, resource: Resource, digest: &str) -> Option<String> {
        let is_digest =
            digest.len() == 32 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_digest {
            return None;
        }
        let is_replaced =
            |name: &str| matches!(self.stored(resource, name), Cow::Owned(other) if other == digest);
        self.of(resource).keys().find(|name| is_replaced(name)).map(ToString::to_string)
    }

    /// Returns the name as it is listed.
    fn stored<'a>(&self, resource: Resource, name: &'a str) -> Cow<'a, str> {
        match resource {
            Resource::LockByKey => name.into(),
            _ => self.admin.stored_name(resource.key_kind(), name),
        }
    }

    /// Keeps all calls with a name of this resource waiting until the result is dropped.
    #[cfg(test)]
    pub(crate) fn busy(&self, resource: Resource) -> impl Drop {
        self.of(resource)
    }

    fn of(&self, resource: Resource) -> MutexGuard<'_, HashMap<Box<str>, u32>> {
        lock(&self.known[resource as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_runtime::Locker;

    const FOREVER: Duration = Duration::MAX;

    #[tokio::test]
    async fn names_that_keys_cannot_spell_count() {
        let locker = Locker::memory();
        let names = NameRegistry::new(locker.admin(), 1);
        assert_eq!(names.admit(Resource::Semaphore, "{a}", FOREVER).await, None);
        locker.keyed_semaphore("{a}", 1).acquire("k", Duration::MAX, Duration::ZERO).await.unwrap();
        assert_eq!(names.admit(Resource::Semaphore, "b", FOREVER).await.unwrap().status, 429);
        let spelled: Vec<_> = names.spellings(Resource::Semaphore).into_iter().collect();
        let [(digest, name)] = &spelled[..] else { panic!("{spelled:?}") };
        assert_eq!((name.as_str(), names.spelling(Resource::Semaphore, digest)), ("{a}", Some(name.clone())));
        assert_eq!(names.spelling(Resource::Event, digest), None);
    }

    #[tokio::test]
    async fn idle_names_make_room() {
        let locker = Locker::memory();
        let names = NameRegistry::new(locker.admin(), 2);
        for name in ["a", "b", "a"] {
            assert_eq!(names.admit(Resource::Semaphore, name, FOREVER).await, None);
            locker.keyed_semaphore(name, 1).acquire(name, Duration::MAX, Duration::ZERO).await.unwrap();
        }
        let refused = names.admit(Resource::Event, "a", FOREVER).await.unwrap();
        assert_eq!(refused.status, 429);
        assert!(locker.keyed_semaphore("b", 1).release("b").await.unwrap());
        lock(&names.listing).next = None;
        assert_eq!(names.admit(Resource::Event, "a", FOREVER).await, None);
        assert_eq!(names.count.load(Ordering::Relaxed), 2);
    }

    /// The cap is never reached, because the listing starts before.
    #[tokio::test]
    async fn idle_names_are_forgotten_before_the_cap() {
        let names = NameRegistry::new(Locker::memory().admin(), 10);
        for number in 0..100 {
            assert_eq!(names.admit(Resource::Event, &number.to_string(), Duration::ZERO).await, None);
            lock(&names.listing).next = None;
            if names.count.load(Ordering::Relaxed) == 9 {
                let few = async || names.count.load(Ordering::Relaxed) < 9;
                locker_harness::until("the listing has ended", few).await;
            }
        }
    }

    /// No listing is running here, and the one that is waited for never ends.
    #[tokio::test(start_paused = true)]
    async fn a_call_waits_a_second_for_a_listing() {
        let names = NameRegistry::new(Locker::memory().admin(), 0);
        lock(&names.listing).is_running = true;
        for (maxwait, expected) in [(FOREVER, 1000), (Duration::from_millis(50), 50), (Duration::ZERO, 0)] {
            let started = tokio::time::Instant::now();
            assert_eq!(names.admit(Resource::Event, "a", maxwait).await.unwrap().status, 429);
            let waited = started.elapsed().as_millis();
            assert!((expected..=expected + 1).contains(&waited), "{waited} ms of {maxwait:?}");
        }
    }
}
