//! The seam between primitives and where their state lives.

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

/// Where state lives: runs requests atomically and delivers signals.
///
/// An implementer owes three things.
/// 1. [`call`](Store::call) carries out each request at one key atomically, as the primitive's `step` does, and
///    nothing of it when the returned future is dropped before its first poll. An error says whether the request
///    was surely not carried out ([`Error::is_certain`](crate::error::Error::is_certain)) or may have been, or may still be.
/// 2. Signals reach the mailboxes of [`mailboxes`](Store::mailboxes) as soon as possible. They may get lost: then
///    [`waiter_ttl`](Store::waiter_ttl) is `Some`, and waiters ask again in time.
/// 3. A hold ends when its lease is over even if nobody asks.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Carries out one request at `key`.
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a>;

    /// The keys in use that start with `prefix`, in no order. One that has just become idle may still be among them.
    fn keys<'a>(&'a self, _prefix: &'a str) -> Keys<'a> {
        Box::pin(ready(Err(Error::new(ErrorKind::Misused, "this store cannot list its keys"))))
    }

    /// The mailboxes to which signals for this process are delivered.
    fn mailboxes(&self) -> &Mailboxes;

    /// Why nobody can be served now, where that is known: what a waiter is told whose patience ends meanwhile.
    fn outage(&self) -> Option<Error> {
        None
    }

    /// How long an answer may take where all is well, as far as that is known: the first one is waited for so long, however
    /// short the caller's patience.
    fn expected_rtt(&self) -> Duration {
        Duration::ZERO
    }

    /// How long a waiter keeps its place without being heard of. `None` when waiters live in the store's own
    /// process, where no signal gets lost and nobody vanishes unnoticed.
    fn waiter_ttl(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }
}

/// A list of keys on its way.
pub type Keys<'a> = Pin<Box<dyn Future<Output = Result<Vec<Key>>> + Send + 'a>>;

/// A call on its way: answered at once by a store of this process (nothing is allocated), later by others.
pub enum Calling<'a> {
    /// The answer is here. Expected only of a store without a [`waiter_ttl`](Store::waiter_ttl).
    Ready(Ready<Result<Reply>>),
    /// The answer comes.
    Pending(Pin<Box<dyn Future<Output = Result<Reply>> + Send + 'a>>),
}

impl Calling<'_> {
    /// A call that has been answered.
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
