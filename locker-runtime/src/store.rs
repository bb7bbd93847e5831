//! The trait of stores.

use crate::{
    error::{Error, ErrorKind, Result},
    key::Key,
    mailboxes::Mailboxes,
    primitives::{Reply, Request},
};
use std::{
    fmt,
    future::{Future, Ready, ready},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

/// A store: keeps state, runs requests atomically and delivers notifications.
///
/// An implementation has three duties.
/// 1. [`call`](Store::call) carries out each request at one key atomically, as the primitive's `step` does. If the
///    returned future is dropped before its first poll, nothing is carried out. [`Error::is_certain`] of an error says
///    whether the request was provably not carried out; otherwise it may have been, or may still be.
/// 2. Notifications reach [`mailboxes`](Store::mailboxes) as soon as possible. If they may be lost,
///    [`waiter_ttl`](Store::waiter_ttl) is `Some`, and waiters ask again in time.
/// 3. A hold ends when its lease is over, even if no request comes.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Carries out one request at `key`.
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a>;

    /// Returns the keys in use that start with `prefix`, in no order. A key that has just become idle may still be
    /// listed.
    fn keys<'a>(&'a self, _prefix: &'a str) -> Keys<'a> {
        Box::pin(ready(Err(Error::new(ErrorKind::Misused, "this store cannot list its keys"))))
    }

    /// Returns the mailboxes to which notifications for this process are delivered.
    fn mailboxes(&self) -> &Mailboxes;

    /// Returns the current outage, if known. Waiters that time out during it get this error instead of `TimedOut`.
    fn outage(&self) -> Option<Error> {
        None
    }

    /// Returns the expected round-trip time. The first reply is awaited at least this long, even if the caller's
    /// timeout is shorter. Default zero.
    fn expected_rtt(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns how long a waiter keeps its place in the queue between two requests, or `None` if all waiters are in the
    /// store's process: no notification is lost there, and no waiter vanishes unnoticed. Default 30 s.
    fn waiter_ttl(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }
}

/// A list of keys, to be awaited.
pub type Keys<'a> = Pin<Box<dyn Future<Output = Result<Vec<Key>>> + Send + 'a>>;

/// A call: ready at once, without an allocation, from a store in this process, pending from others.
pub enum Calling<'a> {
    /// The reply is here. Only a store without a [`waiter_ttl`](Store::waiter_ttl) returns this.
    Ready(Ready<Result<Reply>>),
    /// The reply is to be awaited.
    Pending(Pin<Box<dyn Future<Output = Result<Reply>> + Send + 'a>>),
}

impl Calling<'_> {
    /// Returns a call that is ready.
    #[must_use]
    pub fn answered(result: Result<Reply>) -> Self {
        Self::Ready(ready(result))
    }
}

impl fmt::Debug for Calling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Ready(_)) { "Calling::Ready" } else { "Calling::Pending" })
    }
}

impl Future for Calling<'_> {
    type Output = Result<Reply>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(answer) => Pin::new(answer).poll(context),
            Self::Pending(answer) => answer.as_mut().poll(context),
        }
    }
}
