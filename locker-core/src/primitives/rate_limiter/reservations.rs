//! The reservations of callers, and what is kept of those that were withdrawn.

use super::meter::Meter;
use crate::{
    clock::Timestamp,
    id::Id,
    primitives::parts::{ticket_queue::TicketQueue, tombstones::Tombstones},
};

/// The part of a limiter that exists only while callers wait, or while a reservation was withdrawn.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Reservations {
    pub(super) queue: TicketQueue<Reservation>,
    /// The meter after all reservations in the queue, and after those given up while it was long.
    pub(super) tail: Meter,
    pub(super) admitted: Tombstones,
    pub(super) refused: Tombstones,
    /// When all of it is forgotten. A store that lets its data expire keeps it for a minute after the last known
    /// reservation; callers without a time ask again sooner. The embedded store keeps it, as no caller asks again.
    pub(super) kept_until: Timestamp,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Reservation {
    pub(super) tokens: u64,
    /// When it is due. `NEVER` while that cannot be foreseen.
    pub(super) at: Timestamp,
    /// Whether the caller was woken, and so may ask again after it was due.
    pub(super) woken: bool,
    /// When the caller's patience ends.
    pub(super) give_up: Timestamp,
    pub(super) live_until: Timestamp,
}

impl Reservations {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.admitted.is_empty() && self.refused.is_empty()
    }

    /// Returns when a caller loses its reservation unless it asks again.
    pub(super) fn place(&self, id: Id) -> Option<Timestamp> {
        let reservation = self.queue.get(id)?;
        // One with a time does not depend on further requests of its caller.
        let has_time = reservation.at < Timestamp::NEVER;
        Some(if has_time { self.kept_until } else { reservation.live_until.min(self.kept_until) })
    }
}
