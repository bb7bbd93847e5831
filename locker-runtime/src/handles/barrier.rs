//! The barrier.

use super::wait;
use crate::locker::{Call, Counted, Kind, Locker, Subject, WaitOp};
use locker_core::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    primitives::{Request, Wait, barrier},
    ranges::check_count,
};
use std::time::Duration;

/// A barrier, at which callers wait for each other. Created by [`Locker::barrier`].
///
/// It releases all callers once `parties` of them are waiting, and then starts a new round, or with
/// [`once`](Self::once) refuses later callers. The most recent `parties` applies to all callers.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// use std::time::Duration;
/// let (start, timeout) = (Locker::memory().barrier("start", 2), Duration::from_secs(10));
/// tokio::try_join!(start.wait(timeout), start.wait(timeout))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Barrier {
    locker: Locker,
    key: Key,
    parties: u64,
    once: bool,
}

impl Locker {
    /// Returns the barrier called `name`, for `parties` callers.
    #[must_use]
    pub fn barrier(&self, name: &str, parties: u64) -> Barrier {
        Barrier::new(self.clone(), Key::named(self.prefix(), "barrier", name), parties)
    }
}

impl Barrier {
    pub(crate) fn new(locker: Locker, key: Key, parties: u64) -> Self {
        Self { locker, key, parties, once: false }
    }

    /// Makes the first round the last one: [`wait`](Self::wait) returns `Conflict` after it, for 24 h or until the name
    /// is deleted. All callers should agree on it. Default `false`.
    #[must_use]
    pub fn once(self, once: bool) -> Self {
        Self { once, ..self }
    }

    /// Waits until `parties` callers have arrived. A caller that gets `TimedOut` was not counted; confirming that may
    /// take up to `command_timeout` beyond the timeout. A zero `timeout` checks once; [`Duration::MAX`] waits
    /// indefinitely.
    ///
    /// # Errors
    /// `Misused` with 0 parties or more than 2^53 - 1, or with a timeout over 10 years; `TimedOut`; `Conflict` if the
    /// name is deleted during the wait or belongs to another kind of primitive, or after the only round;
    /// `Unavailable`: this caller may have been counted.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped just as the round becomes full, this caller was counted.
    pub async fn wait(&self, timeout: Duration) -> Result<()> {
        let call = Call::start(self);
        call.check(self.check())?;
        let what = Arriving { id: self.locker.new_id(), parties: self.parties, once: self.once, call };
        wait(&self.locker, &self.key, &what, timeout).await.map(drop)
    }

    fn check(&self) -> Result<()> {
        if self.parties == 0 {
            return Err(Error::new(ErrorKind::Misused, "parties 0: give at least 1"));
        }
        check_count("parties", self.parties)
    }

    /// [`wait`](Self::wait) for callers that are not async.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_blocking(&self, timeout: Duration) -> Result<()> {
        block_on(self.wait(timeout))
    }
}

impl Counted for Barrier {
    fn subject(&self) -> Subject<'_> {
        Subject { locker: &self.locker, key: &self.key, kind: Kind::Barrier, function: None }
    }
}

struct Arriving<'a> {
    id: Id,
    parties: u64,
    once: bool,
    call: Call<'a>,
}

impl WaitOp for Arriving<'_> {
    fn id(&self) -> Id {
        self.id
    }

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        let Self { id, parties, once, .. } = *self;
        Request::Barrier(barrier::Request::Arrive { id, parties, wait, once })
    }

    fn cancel(&self, tombstone: bool) -> Request {
        Request::Barrier(barrier::Request::Cancel { id: self.id, tombstone })
    }

    fn needs_final_check(&self) -> bool {
        true
    }

    fn verb(&self) -> &'static str {
        "passed"
    }
}
