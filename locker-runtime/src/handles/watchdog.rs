//! The watchdog.

use super::{change, wait};
use crate::locker::{Call, Counted, Kind, Locker, Subject, WaitOp};
use locker_core::{
    blocking::block_on,
    error::Result,
    id::Id,
    key::Key,
    primitives::{IdempotencyKey, Request, Wait, watchdog},
    ranges::check_range,
};
use std::time::Duration;

/// A watchdog, which expires if it is not kicked in time. Created by [`Locker::watchdog`].
///
/// It is level-triggered: once it has expired, every wait returns at once until the next kick, for up to 24 h. A
/// watchdog that was never kicked expires 60 s after the first wait.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// use std::time::Duration;
/// let import = Locker::memory().watchdog("import 7");
/// // The import does this again and again while it lives.
/// import.kick(Duration::from_millis(50)).await?;
/// // Another process returns from this once the import has not done so for 50 ms.
/// import.wait(Duration::from_secs(10)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Watchdog {
    locker: Locker,
    key: Key,
}

impl Locker {
    /// Returns the watchdog called `name`.
    #[must_use]
    pub fn watchdog(&self, name: &str) -> Watchdog {
        Watchdog::new(self.clone(), Key::named(self.prefix(), "watchdog", name))
    }
}

impl Watchdog {
    pub(crate) fn new(locker: Locker, key: Key) -> Self {
        Self { locker, key }
    }

    /// Makes the watchdog expire `expires` from now, instead of the time that was set before. 1 ms to 10 years.
    ///
    /// # Errors
    /// `Misused` if `expires` is out of range; `Conflict` if the name belongs to another kind of primitive;
    /// `Unavailable`: it may have been kicked.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, it may have been kicked.
    pub async fn kick(&self, expires: Duration) -> Result<()> {
        check_range("expires", expires, Duration::from_millis(1))?;
        let request = watchdog::Request::Kick { once: IdempotencyKey::new(self.locker.new_id()), expires };
        change(&self.locker, &self.key, Request::Watchdog(request)).await.map(drop)
    }

    /// Waits until the watchdog has expired, and never returns early. A zero `timeout` checks once; [`Duration::MAX`]
    /// waits indefinitely.
    ///
    /// # Errors
    /// `TimedOut`; `Conflict` if the name is deleted during the wait or belongs to another kind of primitive; `Misused`
    /// with a timeout over 10 years; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self, timeout: Duration) -> Result<()> {
        wait(&self.locker, &self.key, &Waiting::new(self), timeout).await.map(drop)
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

impl Counted for Watchdog {
    fn subject(&self) -> Subject<'_> {
        Subject { locker: &self.locker, key: &self.key, kind: Kind::Watchdog, function: None }
    }
}

struct Waiting<'a> {
    id: Id,
    call: Call<'a>,
}

impl<'a> Waiting<'a> {
    fn new(of: &'a Watchdog) -> Self {
        Self { id: of.locker.new_id(), call: Call::start(of) }
    }
}

impl WaitOp for Waiting<'_> {
    fn id(&self) -> Id {
        self.id
    }

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        Request::Watchdog(watchdog::Request::Wait { id: self.id, wait })
    }

    fn cancel(&self, _tombstone: bool) -> Request {
        Request::Watchdog(watchdog::Request::Cancel { id: self.id })
    }

    fn verb(&self) -> &'static str {
        "expired"
    }
}
