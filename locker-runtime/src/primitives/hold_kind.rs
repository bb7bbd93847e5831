//! The kinds of holds.

use super::{
    any::Request,
    parts::hold_request::HoldRequest,
    protocol::{Reply, Wait},
    rwlock::Mode,
    semaphore::Permits,
};
use crate::{
    error::{Error, ErrorKind, Result},
    id::Id,
    ranges::misused,
};
use std::time::Duration;

/// The kind of hold that a guard owns. It builds the requests to acquire, keep and end one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldKind {
    /// An exclusive lock.
    Lock,
    /// Permits of a semaphore.
    Semaphore {
        /// The number of permits that exist.
        size: u64,
        /// The number of permits to take.
        permits: u64,
    },
    /// One side of a read/write lock.
    ReadWrite(Mode),
}

impl HoldKind {
    /// Rejects a number of permits that can never be granted.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Semaphore { permits: 0, .. } => misused("permits 0: take at least 1"),
            Self::Semaphore { size, permits } if size > 0 && permits > size => {
                misused(format!("permits {permits} can never be had at once: there are {size}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the error for a reply that is not a grant.
    pub(crate) fn refusal(self, reply: &Reply) -> Error {
        match (self, reply) {
            (Self::Semaphore { permits, .. }, Reply::Cancelled) => Error::new(
                ErrorKind::Misused,
                format!("permits {permits} can never be had at once any more: the size was lowered"),
            ),
            _ => reply.clone().into_error(),
        }
    }

    /// Returns what to ask of the underlying semaphore. Returns `None` if it is a lock, which has none.
    fn permits(self, id: Id) -> Option<Permits> {
        match self {
            Self::Lock => None,
            Self::Semaphore { size, permits } => Some(Permits { size, permits, key: id }),
            Self::ReadWrite(mode) => Some(mode.permits(id)),
        }
    }

    pub(crate) fn acquire(self, id: Id, lease: Duration, wait: Option<Wait>) -> Request {
        match self.permits(id) {
            None => Request::Lock(HoldRequest::Acquire { id, lease, wait, ask: () }),
            Some(ask) => Request::Semaphore(HoldRequest::Acquire { id, lease, wait, ask }),
        }
    }

    pub(crate) fn renew(self, id: Id, lease: Duration) -> Request {
        match self {
            Self::Lock => Request::Lock(HoldRequest::Renew { id, lease, once: None }),
            _ => Request::Semaphore(HoldRequest::Renew { id, lease, once: None }),
        }
    }

    pub(crate) fn release(self, id: Id, tombstone: bool) -> Request {
        match self {
            Self::Lock => Request::Lock(HoldRequest::Release { id, tombstone, once: None }),
            _ => Request::Semaphore(HoldRequest::Release { id, tombstone, once: None }),
        }
    }

    pub(crate) fn cancel(self, id: Id, tombstone: bool) -> Request {
        match self {
            Self::Lock => Request::Lock(HoldRequest::Cancel { id, tombstone }),
            _ => Request::Semaphore(HoldRequest::Cancel { id, tombstone }),
        }
    }
}
