//! Waiting for each other.

use super::wait;
use crate::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    locker::{Locker, WaitOp},
    primitives::{Request, Wait, barrier},
    ranges::check_count,
};
use std::time::Duration;

/// A place where callers wait for each other: made by [`Locker::barrier`].
///
/// As soon as `parties` wait they all go on, and the next round begins. `parties` holds for everybody from the call
/// on.
#[derive(Clone, Debug)]
pub struct Barrier {
    locker: Locker,
    key: Key,
    parties: u64,
}

impl Locker {
    /// The barrier called `name`, at which `parties` callers wait for each other.
    #[must_use]
    pub fn barrier(&self, name: &str, parties: u64) -> Barrier {
        Barrier::new(self.clone(), Key::named(self.prefix(), "barrier", name), parties)
    }
}

impl Barrier {
    pub(crate) fn new(locker: Locker, key: Key, parties: u64) -> Self {
        Self { locker, key, parties }
    }

    /// Waits until enough callers do. Whoever is told `TimedOut` has not counted: the store is asked once more at the end,
    /// which may take until the command time-out longer.
    ///
    /// # Errors
    /// `Misused` with 0 parties, or more than 2^53 - 1; `TimedOut`; `Conflict` when the name is deleted meanwhile or is
    /// of another kind; `Unavailable`: the others may have gone on with this caller.
    ///
    /// # Cancel safety
    /// When the future is dropped just as the round becomes full, the others go on without this caller.
    pub async fn wait(&self, timeout: Duration) -> Result<()> {
        if self.parties == 0 {
            return Err(Error::new(ErrorKind::Misused, "parties 0: give at least 1"));
        }
        check_count("parties", self.parties)?;
        let what = Arriving { id: self.locker.new_id(), parties: self.parties };
        wait(&self.locker, &self.key, &what, timeout).await.map(drop)
    }

    /// [`wait`](Self::wait) for callers that are not async.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_blocking(&self, timeout: Duration) -> Result<()> {
        block_on(self.wait(timeout))
    }
}

struct Arriving {
    id: Id,
    parties: u64,
}

impl WaitOp for Arriving {
    fn id(&self) -> Id {
        self.id
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        Request::Barrier(barrier::Request::Arrive { id: self.id, parties: self.parties, wait })
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
