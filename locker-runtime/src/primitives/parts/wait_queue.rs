//! The waiters and tombstones of everything that has holders.

use super::{ticket_queue::TicketQueue, tombstones::Tombstones};
use crate::{
    clock::Timestamp,
    primitives::protocol::{GRANT_WINDOW, Signal, Wait},
};
use std::time::Duration;

/// Returns when a waiter of another process asks again: within a third of its lifetime, and soon after the current
/// lease expires. Later waiters ask a little later, so that the first in the queue comes first.
pub(crate) fn recheck(wait: Wait, holder_time_left: Duration, ahead: u64) -> Option<Duration> {
    const STAGGER: Duration = Duration::from_millis(3);
    let stagger = STAGGER.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
    wait.live.map(|live| (live / 3).min(holder_time_left.saturating_add(Duration::from_millis(1) + stagger)))
}

/// The part of a state that exists only under contention.
#[derive(Clone, Debug)]
pub(crate) struct WaitQueue<A> {
    pub(crate) queue: TicketQueue<Waiter<A>>,
    pub(crate) tombstones: Tombstones,
}

impl<A> Default for WaitQueue<A> {
    fn default() -> Self {
        Self { queue: TicketQueue::default(), tombstones: Tombstones::default() }
    }
}

impl<A> WaitQueue<A> {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tombstones.is_empty()
    }

    /// Returns when the first waiter is skipped unless it asks again.
    pub(crate) fn head_ends(&self) -> Option<Timestamp> {
        self.queue.head().map(|(_, head)| head.live_until).filter(|end| *end < Timestamp::NEVER)
    }

    /// Returns whether a caller may overtake the queue: only an unfair one may, and never a fair waiter.
    pub(crate) fn may_be_overtaken(&self, wait: Option<Wait>) -> bool {
        wait.is_some_and(|wait| !wait.fair) && self.queue.head().is_none_or(|(_, head)| !head.wait.fair)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter<A> {
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    pub(crate) live_until: Timestamp,
    /// When it will ask again, as last announced to it.
    pub(crate) recheck_at: Timestamp,
    pub(crate) ask: A,
}

impl<A> Waiter<A> {
    pub(crate) fn new(lease: Duration, wait: Wait, ask: A, now: Timestamp) -> Self {
        let recheck_at = wait.live.map_or(Timestamp::NEVER, |live| now + live / 3);
        Self { lease, wait, live_until: wait.live_until(now), recheck_at, ask }
    }

    /// Returns the length of a grant. A waiter of another process may have disappeared, so its grant is short until
    /// it confirms.
    pub(crate) fn grant(&self) -> Duration {
        if self.wait.live.is_some() { self.lease.min(GRANT_WINDOW) } else { self.lease }
    }

    /// Returns the waiter with the grant window to ask again, as long as a grant would last. Its process may be paused,
    /// or the task that should poll it may wait for another waiter behind it. Asking again restores its lifetime.
    pub(crate) fn woken(self, now: Timestamp) -> Self {
        Self { live_until: self.live_until.min(now + GRANT_WINDOW), ..self }
    }

    /// Returns the signal for a grant at `now`.
    pub(crate) fn signal(&self, fence: u64, now: Timestamp) -> Signal {
        match self.wait.live {
            Some(_) => Signal::Granted { fence },
            None => Signal::HandedOff { fence, until: now + self.grant() },
        }
    }
}
