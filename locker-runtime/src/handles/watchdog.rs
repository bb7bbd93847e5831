//! Kicking a watchdog, and waiting for it to expire.

use super::{change, wait};
use crate::{
    blocking::block_on,
    error::Result,
    id::Id,
    key::Key,
    locker::{Locker, WaitOp},
    primitives::{IdempotencyKey, Request, Wait, watchdog},
    ranges::check_range,
};
use std::time::Duration;

/// Expires when it is not kicked in time: made by [`Locker::watchdog`].
///
/// Level-triggered: once it has expired every wait returns at once, until the next kick (or for 24 h). One that was
/// never kicked expires 60 s after the first wait.
#[derive(Clone, Debug)]
pub struct Watchdog {
    locker: Locker,
    key: Key,
}

impl Locker {
    /// The watchdog called `name`.
    #[must_use]
    pub fn watchdog(&self, name: &str) -> Watchdog {
        Watchdog::new(self.clone(), Key::named(self.prefix(), "watchdog", name))
    }
}

impl Watchdog {
    pub(crate) fn new(locker: Locker, key: Key) -> Self {
        Self { locker, key }
    }

    /// Lets it expire `expires` from now, 1 ms to 10 years, whatever was set before.
    ///
    /// # Errors
    /// `Misused` when `expires` is out of range; `Conflict` when the name is of another kind; `Unavailable`: it may
    /// have been kicked.
    ///
    /// # Cancel safety
    /// When the future is dropped it may have been kicked.
    pub async fn kick(&self, expires: Duration) -> Result<()> {
        check_range("expires", expires, Duration::from_millis(1))?;
        let request = watchdog::Request::Kick { once: IdempotencyKey::new(self.locker.new_id()), expires };
        change(&self.locker, &self.key, Request::Watchdog(request)).await.map(drop)
    }

    /// Waits until it has expired; never returns early. Zero looks once; [`Duration::MAX`] waits for ever.
    ///
    /// # Errors
    /// `TimedOut`; `Conflict` when the name is deleted meanwhile or is of another kind; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self, timeout: Duration) -> Result<()> {
        wait(&self.locker, &self.key, &Waiting(self.locker.new_id()), timeout).await.map(drop)
    }

    /// [`kick`](Self::kick) for callers that are not async.
    ///
    /// # Errors
    /// As [`kick`](Self::kick).
    pub fn kick_blocking(&self, expires: Duration) -> Result<()> {
        block_on(self.kick(expires))
    }

    /// [`wait`](Self::wait) for callers that are not async.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_blocking(&self, timeout: Duration) -> Result<()> {
        block_on(self.wait(timeout))
    }
}

struct Waiting(Id);

impl WaitOp for Waiting {
    fn id(&self) -> Id {
        self.0
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        Request::Watchdog(watchdog::Request::Wait { id: self.0, wait })
    }

    fn cancel(&self, _tombstone: bool) -> Request {
        Request::Watchdog(watchdog::Request::Cancel { id: self.0 })
    }

    fn verb(&self) -> &'static str {
        "expired"
    }
}
