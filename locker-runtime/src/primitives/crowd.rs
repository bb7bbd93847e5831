//! Those who queue for something that is held, and the attempts that are refused: shared by everything with holders.

use super::{GRANT_WINDOW, Signal, Wait, queue::Queue, tombstones::Tombstones};
use crate::clock::Timestamp;
use std::time::Duration;

/// What only something contended has.
#[derive(Clone, Debug)]
pub(crate) struct Crowd<A> {
    pub(crate) queue: Queue<Waiter<A>>,
    pub(crate) tombstones: Tombstones,
}

impl<A> Default for Crowd<A> {
    fn default() -> Self {
        Self { queue: Queue::default(), tombstones: Tombstones::default() }
    }
}

impl<A> Crowd<A> {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tombstones.is_empty()
    }

    /// Only somebody who may be overtaken himself may overtake, and never a waiter who keeps its turn.
    pub(crate) fn may_be_overtaken(&self, wait: Option<Wait>) -> bool {
        wait.is_some_and(|wait| !wait.fair) && self.queue.head().is_none_or(|(_, head)| !head.wait.fair)
    }

    /// When whoever is first in line, was woken and has not come is passed over.
    pub(crate) fn next_pass(&self) -> Option<Timestamp> {
        let end = self.queue.head().map(|(_, head)| head.live_until);
        end.filter(|end| *end < Timestamp::NEVER)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter<A> {
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    pub(crate) live_until: Timestamp,
    /// When it was told to ask again.
    pub(crate) looks_at: Timestamp,
    pub(crate) ask: A,
}

impl<A> Waiter<A> {
    pub(crate) fn new(lease: Duration, wait: Wait, ask: A, now: Timestamp) -> Self {
        let looks_at = wait.live.map_or(Timestamp::NEVER, |live| now + live / 3);
        Self { lease, wait, live_until: wait.live_until(now), looks_at, ask }
    }

    /// A waiter of another process may be gone without a word: its grant is short until it confirms.
    pub(crate) fn grant(&self) -> Duration {
        if self.wait.live.is_some() { self.lease.min(GRANT_WINDOW) } else { self.lease }
    }

    /// One that was told to ask has the grant window to do so, like one that was granted something: its process may
    /// stand still, or nobody polls it. Asking again renews it.
    pub(crate) fn woken(self, now: Timestamp) -> Self {
        Self { live_until: self.live_until.min(now + GRANT_WINDOW), ..self }
    }

    /// What a waiter is told that was granted something now.
    pub(crate) fn signal(&self, fence: u64, now: Timestamp) -> Signal {
        match self.wait.live {
            Some(_) => Signal::Granted { fence },
            None => Signal::Held { fence, until: now + self.grant() },
        }
    }
}
