//! Those who queue for something that is held, and the attempts that are refused: shared by everything with holders.

use super::{GRANT_WINDOW, Signal, Wait, queue::Queue, tombstones::Tombstones};
use crate::clock::Timestamp;
use std::time::Duration;

/// What only something contended has.
#[derive(Clone, Debug)]
pub(crate) struct WaitQueue<A> {
    pub(crate) queue: Queue<Waiter<A>>,
    pub(crate) tombstones: Tombstones,
}

impl<A> Default for WaitQueue<A> {
    fn default() -> Self {
        Self { queue: Queue::default(), tombstones: Tombstones::default() }
    }
}

impl<A> WaitQueue<A> {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tombstones.is_empty()
    }

    /// When the first in line is passed over, if it is not heard of.
    pub(crate) fn head_ends(&self) -> Option<Timestamp> {
        self.queue.head().map(|(_, head)| head.live_until).filter(|end| *end < Timestamp::NEVER)
    }

    /// Only somebody who may be overtaken himself may overtake, and never a waiter who keeps its turn.
    pub(crate) fn may_be_overtaken(&self, wait: Option<Wait>) -> bool {
        wait.is_some_and(|wait| !wait.fair) && self.queue.head().is_none_or(|(_, head)| !head.wait.fair)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter<A> {
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    pub(crate) live_until: Timestamp,
    /// When it was told to ask again.
    pub(crate) recheck_at: Timestamp,
    pub(crate) ask: A,
}

impl<A> Waiter<A> {
    pub(crate) fn new(lease: Duration, wait: Wait, ask: A, now: Timestamp) -> Self {
        let recheck_at = wait.live.map_or(Timestamp::NEVER, |live| now + live / 3);
        Self { lease, wait, live_until: wait.live_until(now), recheck_at, ask }
    }

    /// A waiter of another process may be gone without a word: its grant is short until it confirms.
    pub(crate) fn grant(&self) -> Duration {
        if self.wait.live.is_some() { self.lease.min(GRANT_WINDOW) } else { self.lease }
    }

    /// One that was told to ask has the grant window to do so, like one that was granted something: its process may
    /// stand still, and whoever should poll it may wait for another behind it. Asking again renews it.
    pub(crate) fn woken(self, now: Timestamp) -> Self {
        Self { live_until: self.live_until.min(now + GRANT_WINDOW), ..self }
    }

    /// What a waiter is told that was granted something now.
    pub(crate) fn signal(&self, fence: u64, now: Timestamp) -> Signal {
        match self.wait.live {
            Some(_) => Signal::Granted { fence },
            None => Signal::HandedOff { fence, until: now + self.grant() },
        }
    }
}
