//! The event.

use super::{change, expect, request_with_retry, wait};
use crate::locker::{Call, Counted, Kind, Locker, Subject, WaitOp};
use locker_core::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    primitives::{IdempotencyKey, KEEP, Reply, Request, Wait, event},
    ranges::check_range,
};
use std::time::Duration;

/// An event, which is sent once. Created by [`Locker::event`].
///
/// It stays sent, for present and later waiters, until it is reset or `keep` has passed.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// use std::time::Duration;
/// let event = Locker::memory().event("import 7");
/// event.send("42 rows").await?;
/// assert_eq!(event.wait(Duration::from_secs(10)).await?, "42 rows");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Event {
    locker: Locker,
    key: Key,
    keep: Duration,
}

impl Locker {
    /// Returns the event called `name`.
    #[must_use]
    pub fn event(&self, name: &str) -> Event {
        Event::new(self.clone(), Key::named(self.prefix(), "event", name))
    }
}

impl Event {
    pub(crate) fn new(locker: Locker, key: Key) -> Self {
        Self { locker, key, keep: KEEP }
    }

    /// Sets how long a sent event stays sent. Default 24 h, 1 ms to 10 years.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Waits until the event is sent, and returns its message. A zero `timeout` checks once; [`Duration::MAX`] waits
    /// indefinitely.
    ///
    /// # Errors
    /// `TimedOut`; `Conflict` if the name is deleted during the wait or belongs to another kind of primitive; `Misused`
    /// with a timeout over 10 years; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self, timeout: Duration) -> Result<String> {
        match wait(&self.locker, &self.key, &Waiting::new(self), timeout).await? {
            Reply::Message(message) => Ok(message.as_ref().to_owned()),
            _ => Ok(String::new()),
        }
    }

    /// Sends the event, with a message for all waiters.
    ///
    /// # Errors
    /// `Conflict` if it was sent already, or the name belongs to another kind of primitive; `Misused` if
    /// [`keep`](Self::keep) is out of range; `Unavailable`: it may have been sent.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, the event may have been sent.
    pub async fn send(&self, message: &str) -> Result<()> {
        check_range("keep", self.keep, Duration::from_millis(1))?;
        let once = IdempotencyKey::new(self.locker.new_id());
        let request = event::Request::Send { once, message: message.into(), keep: self.keep };
        match request_with_retry(&self.locker, &self.key, Request::Event(request)).await?.reply {
            Reply::Conflict => {
                let error = Error::new(ErrorKind::Conflict, "the event was sent already");
                Err(error.with_key(self.key.as_str()))
            }
            reply => expect(reply, &self.key).map(drop),
        }
    }

    /// Makes the event unsent, so that it can be sent again. Waiters keep waiting.
    ///
    /// # Errors
    /// `Conflict` if the name belongs to another kind of primitive; `Unavailable`: it may have been reset.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, the event may have been reset.
    pub async fn reset(&self) -> Result<()> {
        let request = event::Request::Reset { once: IdempotencyKey::new(self.locker.new_id()) };
        change(&self.locker, &self.key, Request::Event(request)).await.map(drop)
    }

    /// [`wait`](Self::wait) for callers that are not async.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_blocking(&self, timeout: Duration) -> Result<String> {
        block_on(self.wait(timeout))
    }

    /// [`send`](Self::send) for callers that are not async.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_blocking(&self, message: &str) -> Result<()> {
        block_on(self.send(message))
    }

    /// [`reset`](Self::reset) for callers that are not async.
    ///
    /// # Errors
    /// As [`reset`](Self::reset).
    pub fn reset_blocking(&self) -> Result<()> {
        block_on(self.reset())
    }
}

impl Counted for Event {
    fn subject(&self) -> Subject<'_> {
        Subject { locker: &self.locker, key: &self.key, kind: Kind::Event, function: None }
    }
}

struct Waiting<'a> {
    id: Id,
    call: Call<'a>,
}

impl<'a> Waiting<'a> {
    fn new(of: &'a Event) -> Self {
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
        Request::Event(event::Request::Wait { id: self.id, wait })
    }

    fn cancel(&self, _tombstone: bool) -> Request {
        Request::Event(event::Request::Cancel { id: self.id })
    }

    fn verb(&self) -> &'static str {
        "sent"
    }
}
