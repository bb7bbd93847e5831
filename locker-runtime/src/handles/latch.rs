//! The latch.

use super::{change, wait};
use crate::locker::{Call, Counted, Kind, Locker, Subject, WaitOp};
use locker_core::{
    blocking::block_on,
    error::{Error, Result},
    id::Id,
    key::Key,
    primitives::{Reply, Request, Wait, latch},
    ranges::check_count,
};
use std::time::Duration;

/// A latch, which opens once it was counted down `count` times. Created by [`Locker::latch`].
///
/// The most recent `count` applies to all callers; earlier count-downs are kept. A latch resets after 24 h without a
/// count-down.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// use std::time::Duration;
/// let loaded = Locker::memory().latch("shards loaded", 2);
/// assert_eq!(loaded.count_down().await?, 1);
/// assert_eq!(loaded.count_down().await?, 0);
/// loaded.wait(Duration::from_secs(10)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    locker: Locker,
    key: Key,
    count: u64,
}

impl Locker {
    /// Returns the latch called `name`, which opens after `count` count-downs.
    #[must_use]
    pub fn latch(&self, name: &str, count: u64) -> Latch {
        Latch::new(self.clone(), Key::named(self.prefix(), "latch", name), count)
    }
}

impl Latch {
    pub(crate) fn new(locker: Locker, key: Key, count: u64) -> Self {
        Self { locker, key, count }
    }

    /// Counts down by one. Returns how many count-downs are left.
    ///
    /// # Errors
    /// `Misused` with a count over 2^53 - 1; `Conflict` if the name belongs to another kind of primitive;
    /// `Unavailable`: it may have been counted.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, it may have been counted.
    pub async fn count_down(&self) -> Result<u64> {
        check_count("count", self.count)?;
        let request = latch::Request::CountDown { id: self.locker.new_id(), count: self.count };
        match change(&self.locker, &self.key, Request::Latch(request)).await? {
            Reply::Value(left) => Ok(left.unsigned_abs()),
            reply => Err::<u64, Error>(reply.into_error().with_key(self.key.as_str())),
        }
    }

    /// Waits until the latch is open. A zero `timeout` checks once; [`Duration::MAX`] waits indefinitely.
    ///
    /// # Errors
    /// `Misused` with a count over 2^53 - 1, or a timeout over 10 years; `TimedOut`; `Conflict` if the name is deleted
    /// during the wait or belongs to another kind of primitive; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self, timeout: Duration) -> Result<()> {
        let what = Waiting { id: self.locker.new_id(), count: self.count, call: Call::start(self) };
        what.call.check(check_count("count", self.count))?;
        wait(&self.locker, &self.key, &what, timeout).await.map(drop)
    }

    /// [`count_down`](Self::count_down) for callers that are not async.
    ///
    /// # Errors
    /// As [`count_down`](Self::count_down).
    pub fn count_down_blocking(&self) -> Result<u64> {
        block_on(self.count_down())
    }

    /// [`wait`](Self::wait) for callers that are not async.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_blocking(&self, timeout: Duration) -> Result<()> {
        block_on(self.wait(timeout))
    }
}

impl Counted for Latch {
    fn subject(&self) -> Subject<'_> {
        Subject { locker: &self.locker, key: &self.key, kind: Kind::Latch, function: None }
    }
}

struct Waiting<'a> {
    id: Id,
    count: u64,
    call: Call<'a>,
}

impl WaitOp for Waiting<'_> {
    fn id(&self) -> Id {
        self.id
    }

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        Request::Latch(latch::Request::Wait { id: self.id, count: self.count, wait })
    }

    fn cancel(&self, _tombstone: bool) -> Request {
        Request::Latch(latch::Request::Cancel { id: self.id })
    }

    fn verb(&self) -> &'static str {
        "opened"
    }
}
