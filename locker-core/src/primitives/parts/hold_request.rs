//! The requests of everything that is held for a time.

use super::idempotency::IdempotencyKey;
use crate::{id::Id, primitives::protocol::Wait};
use std::time::Duration;

/// A request to a primitive with holders. `A` says what exactly is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum HoldRequest<A> {
    /// Acquires a hold, or joins the queue if `wait` is given. Asking again with the same id returns the same grant.
    Acquire {
        /// The attempt and, once granted, the hold.
        id: Id,
        /// How long the hold lasts without renewal.
        lease: Duration,
        /// How to wait. With `None` the reply is `Busy` at once, and the caller leaves the queue.
        wait: Option<Wait>,
        /// What exactly is asked for.
        ask: A,
    },
    /// Extends a hold to `lease` from now; a lock that already lasts longer keeps its end.
    Renew {
        /// The hold.
        id: Id,
        /// The new time to live.
        lease: Duration,
        /// For a name that is held again and again, unlike the id of an attempt: a late copy has no effect.
        once: Option<IdempotencyKey>,
    },
    /// Ends a hold.
    Release {
        /// The hold.
        id: Id,
        /// Whether to reject this id from now on, because an attempt with an unknown outcome may still arrive.
        tombstone: bool,
        /// As for `Renew`.
        once: Option<IdempotencyKey>,
    },
    /// Leaves the queue, and ends the hold if there is one.
    Cancel {
        /// The attempt.
        id: Id,
        /// As for `Release`.
        tombstone: bool,
    },
    /// Ends the holds of all callers. Waiters keep their places.
    Evict {
        /// Ends only the hold that this attempt was granted, if no other attempt has got the same hold since.
        of: Option<Id>,
        /// The highest fence to end: a repeated request does not end the hold of the next holder.
        up_to: u64,
    },
}
