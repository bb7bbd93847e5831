//! The kinds of holds.

use super::{
    any::Request,
    parts::{hold_request::HoldRequest, idempotency::IdempotencyKey},
    protocol::{Reply, Wait},
    record::{self, Ask},
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
    /// A run of a record.
    Record,
}

impl HoldKind {
    /// Returns whether a hold that is lost may be released. The release of a run says that it has failed, which nobody
    /// knows.
    #[must_use]
    pub fn may_be_released_when_lost(self) -> bool {
        self != Self::Record
    }

    /// Rejects a number of permits that can never be granted.
    ///
    /// # Errors
    /// `Misused`.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Semaphore { permits: 0, .. } => misused("permits 0: take at least 1"),
            Self::Semaphore { size, permits } if size > 0 && permits > size => {
                misused(format!("permits {permits} can never be had at once: there are {size}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it cannot be granted at a key while all of `held` are held there.
    pub fn waits_for(self, mut held: impl Iterator<Item = Self>) -> bool {
        match self {
            Self::Lock => held.any(|held| held == Self::Lock),
            Self::ReadWrite(mode) => held.any(|held| match held {
                Self::ReadWrite(other) => mode == Mode::Write || other == Mode::Write,
                _ => false,
            }),
            Self::Record => held.any(|held| matches!(held, Self::Record)),
            // Size 0 waits until it is raised, and a caller with a greater size may raise any other.
            Self::Semaphore { size, permits } => {
                let (mut most, mut taken) = (size, 0);
                for held in held {
                    if let Self::Semaphore { size, permits } = held {
                        (most, taken) = (most.max(size), u64::saturating_add(taken, permits));
                    }
                }
                size > 0 && taken > 0 && taken.saturating_add(permits) > most
            }
        }
    }

    /// Returns the error for a reply that is not a grant.
    #[must_use]
    pub fn refusal(self, reply: &Reply) -> Error {
        match (self, reply) {
            (Self::Semaphore { permits, .. }, Reply::Cancelled) => Error::new(
                ErrorKind::Misused,
                format!("permits {permits} can never be had at once any more: the size was lowered"),
            ),
            _ => reply.clone().into_error(),
        }
    }

    /// Returns how many permits it takes. A lock is a semaphore of one permit, a writer takes all of them.
    #[must_use]
    pub fn permit_count(self) -> u64 {
        self.permits(Id::ZERO).map_or(1, |ask| ask.permits)
    }

    /// Returns what to ask of the underlying semaphore. Returns `None` if it is a lock or a record, which have none.
    fn permits(self, id: Id) -> Option<Permits> {
        match self {
            Self::Lock | Self::Record => None,
            Self::Semaphore { size, permits } => Some(Permits { size, permits, key: id }),
            Self::ReadWrite(mode) => Some(mode.permits(id)),
        }
    }

    /// Returns the request for a hold.
    #[must_use]
    pub fn acquire(self, id: Id, lease: Duration, wait: Option<Wait>) -> Request {
        self.acquire_named(id, None, lease, wait)
    }

    /// Returns the request of the attempt `id` for a hold with a name of its own. A run of a record has none; what else
    /// a record is asked is in an [`Ask`].
    #[must_use]
    pub fn acquire_named(self, id: Id, name: Option<Id>, lease: Duration, wait: Option<Wait>) -> Request {
        if self == Self::Record {
            return Request::Record(Ask::default().begin(id, lease, wait));
        }
        match self.permits(name.unwrap_or(id)) {
            None => Request::Lock(HoldRequest::Acquire { id, lease, wait, ask: name }),
            Some(ask) => Request::Semaphore(HoldRequest::Acquire { id, lease, wait, ask }),
        }
    }

    /// Returns the request that prolongs a hold.
    #[must_use]
    pub fn renew(self, id: Id, lease: Duration) -> Request {
        self.renew_once(id, lease, None)
    }

    /// Returns the renewal of a hold that may be held again and again under its name.
    #[must_use]
    pub fn renew_once(self, id: Id, lease: Duration, once: Option<IdempotencyKey>) -> Request {
        match self {
            Self::Lock => Request::Lock(HoldRequest::Renew { id, lease, once }),
            Self::Record => Request::Record(record::Request::Hold(HoldRequest::Renew { id, lease, once })),
            _ => Request::Semaphore(HoldRequest::Renew { id, lease, once }),
        }
    }

    /// Returns the request that ends a hold.
    #[must_use]
    pub fn release(self, id: Id, tombstone: bool) -> Request {
        self.release_with(id, tombstone, None)
    }

    /// Returns the release of a hold that may be held again and again under its name.
    #[must_use]
    pub fn release_once(self, id: Id, once: Option<IdempotencyKey>) -> Request {
        self.release_with(id, false, once)
    }

    fn release_with(self, id: Id, tombstone: bool, once: Option<IdempotencyKey>) -> Request {
        match self {
            Self::Lock => Request::Lock(HoldRequest::Release { id, tombstone, once }),
            Self::Record => {
                Request::Record(record::Request::Hold(HoldRequest::Release { id, tombstone, once }))
            }
            _ => Request::Semaphore(HoldRequest::Release { id, tombstone, once }),
        }
    }

    /// Returns the request that ends an attempt.
    #[must_use]
    pub fn cancel(self, id: Id, tombstone: bool) -> Request {
        match self {
            Self::Lock => Request::Lock(HoldRequest::Cancel { id, tombstone }),
            Self::Record => Request::Record(record::Request::Hold(HoldRequest::Cancel { id, tombstone })),
            _ => Request::Semaphore(HoldRequest::Cancel { id, tombstone }),
        }
    }
}
