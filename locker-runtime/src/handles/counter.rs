//! The counter.

use super::request_with_retry;
use crate::locker::Locker;
use locker_core::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
    key::Key,
    primitives::{
        IdempotencyKey, Reply, Request,
        counter::{self, MAX_VALUE, is_exact},
    },
};

/// A counter, shared by all callers. Created by [`Locker::counter`].
///
/// It starts at 0, stays within ±(2^53 − 1), and is 0 again after 24 h without a change.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// let failures = Locker::memory().counter("failures");
/// assert_eq!(failures.add(2).await?, 2);
/// assert_eq!(failures.add(-1).await?, 1);
/// failures.set(0).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Counter {
    locker: Locker,
    key: Key,
}

impl Locker {
    /// Returns the counter called `name`.
    #[must_use]
    pub fn counter(&self, name: &str) -> Counter {
        Counter::new(self.clone(), Key::named(self.prefix(), "counter", name))
    }
}

impl Counter {
    pub(crate) fn new(locker: Locker, key: Key) -> Self {
        Self { locker, key }
    }

    /// Adds `by` (negative to subtract) and returns the sum.
    ///
    /// # Errors
    /// `Misused` if `by` is out of range; `Conflict` if the sum is out of range, or the name belongs to another kind of
    /// primitive; `Unavailable`: it may have been added.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, it may have been added.
    pub async fn add(&self, by: i64) -> Result<i64> {
        check("by", by)?;
        // No reply of an embedded store gets lost, so it need not remember an id for a minute.
        let inline = Request::Counter(counter::Request::Add { id: counter::ONCE, by });
        match self.locker.call_inline(&self.key, &inline, None) {
            Some(reply) => self.value(reply?),
            None => self.ask(counter::Request::Add { id: self.locker.new_id(), by }).await,
        }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// `Conflict` if the name belongs to another kind of primitive; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn get(&self) -> Result<i64> {
        self.ask(counter::Request::Get).await
    }

    /// Sets the value.
    ///
    /// # Errors
    /// `Misused` if it is out of range; `Conflict` if the name belongs to another kind of primitive; `Unavailable`: it
    /// may have been set.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, it may have been set.
    pub async fn set(&self, value: i64) -> Result<()> {
        check("value", value)?;
        self.ask(counter::Request::Set { once: IdempotencyKey::new(self.locker.new_id()), value })
            .await
            .map(drop)
    }

    /// [`add`](Self::add) for callers that are not async.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_blocking(&self, by: i64) -> Result<i64> {
        block_on(self.add(by))
    }

    /// [`get`](Self::get) for callers that are not async.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_blocking(&self) -> Result<i64> {
        block_on(self.get())
    }

    /// [`set`](Self::set) for callers that are not async.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_blocking(&self, value: i64) -> Result<()> {
        block_on(self.set(value))
    }

    async fn ask(&self, request: counter::Request) -> Result<i64> {
        self.value(request_with_retry(&self.locker, &self.key, Request::Counter(request)).await?.reply)
    }

    fn value(&self, reply: Reply) -> Result<i64> {
        match reply {
            Reply::Value(value) => Ok(value),
            Reply::Conflict => {
                let error = Error::new(ErrorKind::Conflict, "the counter would be out of range");
                Err(error.with_key(self.key.as_str()))
            }
            reply => Err(reply.into_error().with_key(self.key.as_str())),
        }
    }
}

fn check(what: &str, number: i64) -> Result<()> {
    if is_exact(number) {
        return Ok(());
    }
    let message = format!("{what} {number} is out of range: give -{MAX_VALUE} to {MAX_VALUE}");
    Err(Error::new(ErrorKind::Misused, message))
}
