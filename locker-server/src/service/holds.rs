//! Actions on what is held: semaphores and locks.

use super::action::{ActionCall, max_if_beyond_range};
use crate::{
    api::{Answer, Params, Resource},
    ranges::MAX_TIME,
};
use locker_runtime::{Error, Grant, KeyedLock, KeyedRwLock, KeyedSemaphore, Result};
use std::time::Duration;

impl ActionCall<'_> {
    pub(super) async fn change_hold(&self) -> Result<Answer> {
        if self.action.takes_hold() {
            self.acquire_hold().await
        } else if self.action.renews_hold() {
            self.renew().await.map(done_if_held)
        } else {
            self.release().await.map(done_if_held)
        }
    }

    async fn acquire_hold(&self) -> Result<Answer> {
        // Drawn only for clients without a key, because that is a system call. Written out only briefly, because
        // every waiting call reserves space for it.
        let own = if self.params.key.is_some() { uuid::Uuid::nil() } else { uuid::Uuid::new_v4() };
        let held = match self.resource() {
            Resource::Semaphore => self.acquire_slot(own).await,
            Resource::RwLock => self.acquire_side(own).await,
            _ => self.acquire_lock(own).await,
        };
        match held {
            Ok(held) => Ok(Answer::text(self.key_or(own)).with_fence(held.fence)),
            Err(error) => self.hold_cap_reached(&error).ok_or(error),
        }
    }

    fn acquire_slot(&self, own: uuid::Uuid) -> impl Future<Output = Result<Grant>> + Send + use<> {
        let (size, maxwait) = self.shared.holds.limit(self.params.size, self.maxwait());
        self.semaphore().acquire(size, &self.key_or(own), self.expires(), maxwait)
    }

    fn acquire_lock(&self, own: uuid::Uuid) -> impl Future<Output = Result<Grant>> + Send + use<> {
        self.lock().acquire(&self.key_or(own), self.expires(), self.maxwait())
    }

    fn acquire_side(&self, own: uuid::Uuid) -> impl Future<Output = Result<Grant>> + Send + use<> {
        let Params { mode, .. } = *self.params;
        self.rwlock().acquire(mode, &self.key_or(own), self.expires(), self.maxwait())
    }

    fn hold_cap_reached(&self, error: &Error) -> Option<Answer> {
        let has_size = self.resource() == Resource::Semaphore;
        self.shared.holds.refusal(self.params.size, error).filter(|_| has_size)
    }

    async fn renew(&self) -> Result<bool> {
        match self.resource() {
            Resource::Semaphore => self.semaphore().renew(self.key(), self.expires()).await,
            Resource::RwLock => self.rwlock().renew(self.key(), self.expires()).await,
            _ => self.lock().renew(self.key(), self.expires()).await,
        }
    }

    async fn release(&self) -> Result<bool> {
        match self.resource() {
            Resource::Semaphore => self.semaphore().release(self.key()).await,
            Resource::RwLock => self.rwlock().release(self.key()).await,
            _ => self.lock().release(self.key()).await,
        }
    }

    fn semaphore(&self) -> KeyedSemaphore {
        self.shared.locker.keyed_semaphore(self.name)
    }

    fn lock(&self) -> KeyedLock {
        self.shared.locker.keyed_lock_at(self.shared.key(self.action.row().resource, self.name))
    }

    fn rwlock(&self) -> KeyedRwLock {
        self.shared.locker.keyed_rwlock(self.name)
    }

    fn key_or(&self, own: uuid::Uuid) -> String {
        self.params.key.as_deref().map_or_else(|| own.to_string(), str::to_owned)
    }

    fn key(&self) -> &str {
        self.params.key.as_deref().unwrap_or_default()
    }

    /// Returns how long the hold lasts. Only that of a semaphore may have no end.
    fn expires(&self) -> Duration {
        match self.action.row().resource {
            Resource::Semaphore => max_if_beyond_range(self.params.expires),
            _ => self.params.expires.unwrap_or(MAX_TIME).min(MAX_TIME),
        }
    }
}

fn done_if_held(held: bool) -> Answer {
    if held { Answer::done() } else { Answer::not_held() }
}
