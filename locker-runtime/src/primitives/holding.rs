//! What is asked about something that is held, and the kinds of it.

use super::{IdempotencyKey, Reply, Request, Wait, rwlock::Mode, semaphore::Permits};
use crate::{
    error::{Error, ErrorKind, Result},
    id::Id,
};
use std::time::Duration;

/// A request about something that is held: the same for every primitive with holders, `A` being what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum HoldRequest<A> {
    /// Hold it, or queue for it when `wait` is given. Asking again with the same id gives the same grant.
    Acquire {
        /// Names the attempt and, once granted, the hold.
        id: Id,
        /// How long the hold lasts without renewal.
        lease: Duration,
        /// How to wait; `None` answers `Busy` at once and leaves the queue.
        wait: Option<Wait>,
        /// What exactly is asked for.
        ask: A,
    },
    /// Let the hold last `lease` from now; a lock that lasts longer is left as it is.
    Renew {
        /// The hold.
        id: Id,
        /// The new time to live.
        lease: Duration,
        /// For a name that is held again and again, as those of locks are not: a late copy changes nothing.
        once: Option<IdempotencyKey>,
    },
    /// End the hold.
    Release {
        /// The hold.
        id: Id,
        /// Refuse this id from now on: an attempt with an unknown outcome may still arrive.
        tombstone: bool,
        /// As for `Renew`.
        once: Option<IdempotencyKey>,
    },
    /// Leave the queue, and end the hold if there is one.
    Cancel {
        /// The attempt.
        id: Id,
        /// As for `Release`.
        tombstone: bool,
    },
    /// End every hold, whoever has it; those who wait stay in line.
    Evict {
        /// Only what this attempt was granted, as long as no other was told of it.
        of: Option<Id>,
        /// Holds with a higher fence stay: a repeated request does not end the hold of the next in line.
        up_to: u64,
    },
}

/// What kind of hold a guard owns; it knows how to ask for one, keep it and end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldKind {
    /// An exclusive lock.
    Lock,
    /// Permits of a semaphore.
    Semaphore {
        /// How many there are.
        size: u64,
        /// How many to take.
        permits: u64,
    },
    /// One side of a read/write lock.
    ReadWrite(Mode),
}

impl HoldKind {
    /// Refuses what can never be had.
    pub(crate) fn check(self) -> Result<()> {
        let misused = |message: String| Err(Error::new(ErrorKind::Misused, message));
        match self {
            Self::Semaphore { permits: 0, .. } => misused("permits 0: take at least 1".into()),
            Self::Semaphore { size, permits } if size > 0 && permits > size => {
                misused(format!("permits {permits} can never be had at once: there are {size}"))
            }
            _ => Ok(()),
        }
    }

    /// Why it was not granted.
    pub(crate) fn refusal(self, reply: &Reply) -> Error {
        match (self, reply) {
            (Self::Semaphore { permits, .. }, Reply::Cancelled) => Error::new(
                ErrorKind::Misused,
                format!("permits {permits} can never be had at once any more: the size was lowered"),
            ),
            _ => reply.clone().into_error(),
        }
    }

    /// What is asked of the semaphore beneath; a lock has none.
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
