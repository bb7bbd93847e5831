//! Counting together.

use super::{change, expect};
use crate::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
    key::Key,
    locker::Locker,
    primitives::{
        IdempotencyKey, Reply, Request,
        counter::{self, MAX_VALUE, is_exact},
    },
};

/// A number that many change: made by [`Locker::counter`].
///
/// It starts at 0, stays within ±(2^53 − 1), and is forgotten when nobody changes it for 24 h.
#[derive(Clone, Debug)]
pub struct Counter {
    locker: Locker,
    key: Key,
}

impl Locker {
    /// The counter called `name`.
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
    /// `Misused` when `by` is out of range; `Conflict` when the sum is, or the name is of another kind; `Unavailable`:
    /// it may have been added.
    ///
    /// # Cancel safety
    /// When the future is dropped it may have been added.
    pub async fn add(&self, by: i64) -> Result<i64> {
        check("by", by)?;
        // The embedded store would remember every id for a minute, though no answer of its gets lost.
        let once = Request::Counter(counter::Request::Add { id: counter::ONCE, by });
        match self.locker.call_inline(&self.key, &once) {
            Some(answer) => self.value(expect(answer?, &self.key)?),
            None => self.ask(counter::Request::Add { id: self.locker.new_id(), by }).await,
        }
    }

    /// The value now.
    ///
    /// # Errors
    /// `Conflict` when the name is of another kind; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn get(&self) -> Result<i64> {
        self.ask(counter::Request::Get).await
    }

    /// Makes it `value`.
    ///
    /// # Errors
    /// `Misused` when it is out of range; `Conflict` when the name is of another kind; `Unavailable`: it may have
    /// been set.
    ///
    /// # Cancel safety
    /// When the future is dropped it may have been set.
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
        self.value(change(&self.locker, &self.key, Request::Counter(request)).await?)
    }

    fn value(&self, reply: Reply) -> Result<i64> {
        match reply {
            Reply::Value(value) => Ok(value),
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
