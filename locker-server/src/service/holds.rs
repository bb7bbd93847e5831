//! Actions on what is held: semaphores and locks.

use super::action::{ActionCall, max_if_beyond_range};
use crate::{
    api::{Answer, Resource},
    ranges::MAX_TIME,
};
use locker_runtime::{Error, Grant, KeyedHold, Result};
use std::time::Duration;

impl ActionCall<'_> {
    pub(super) async fn change_hold(&self) -> Result<Answer> {
        if self.action.takes_hold() {
            return self.acquire_hold().await;
        }
        let (hold, key) = (self.hold(self.params.size), self.key());
        let was_held = if self.action.renews_hold() {
            hold.renew(key, self.expires()).await?
        } else {
            hold.release(key).await?
        };
        Ok(if was_held { Answer::done() } else { Answer::not_held() })
    }

    async fn acquire_hold(&self) -> Result<Answer> {
        // Drawn only for clients without a key, because that is a system call. Written out only briefly, because
        // every waiting call reserves space for it.
        let own = if self.params.key.is_some() { uuid::Uuid::nil() } else { uuid::Uuid::new_v4() };
        match self.acquire(own).await {
            Ok(held) => Ok(Answer::text(self.key_or(own)).with_fence(held.fence)),
            Err(error) => self.hold_cap_reached(&error).ok_or(error),
        }
    }

    fn acquire(&self, own: uuid::Uuid) -> impl Future<Output = Result<Grant>> + Send + use<> {
        let (size, maxwait) = match self.resource() {
            Resource::Semaphore => self.shared.holds.limit(self.params.size, self.maxwait()),
            _ => (self.params.size, self.maxwait()),
        };
        self.hold(size).acquire(&self.key_or(own), self.expires(), maxwait)
    }

    fn hold_cap_reached(&self, error: &Error) -> Option<Answer> {
        let has_size = self.resource() == Resource::Semaphore;
        self.shared.holds.refusal(self.params.size, error).filter(|_| has_size)
    }

    /// Returns the hold of a semaphore of this `size`, or of a lock.
    fn hold(&self, size: u64) -> KeyedHold {
        let locker = &self.shared.locker;
        match self.resource() {
            Resource::Semaphore => locker.keyed_semaphore(self.name, size),
            Resource::RwLock => locker.keyed_rwlock(self.name, self.params.mode),
            resource => locker.keyed_lock_at(self.shared.key(resource, self.name)),
        }
    }

    fn key_or(&self, own: uuid::Uuid) -> String {
        self.params.key.as_deref().map_or_else(|| own.to_string(), str::to_owned)
    }

    pub(super) fn key(&self) -> &str {
        self.params.key.as_deref().unwrap_or_default()
    }

    /// Returns how long the hold lasts. Only that of a semaphore may have no end.
    pub(super) fn expires(&self) -> Duration {
        match self.resource() {
            Resource::Semaphore => max_if_beyond_range(self.params.expires),
            _ => self.params.expires.unwrap_or(MAX_TIME).min(MAX_TIME),
        }
    }
}
