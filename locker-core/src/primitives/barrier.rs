//! The barrier: callers wait for each other and continue together, round after round or once.

use super::{
    inspection::Inspection,
    parts::{tombstones::Tombstones, watchers::Watchers},
    protocol::{KEEP, Reply, Signal, Wait},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id};

/// A request to a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Arrives, and waits until `parties` callers have arrived.
    Arrive {
        /// The caller.
        id: Id,
        /// The number of callers of a round. The most recent value applies to all callers.
        parties: u64,
        /// How to wait. With `None` the reply is immediate, and the caller does not count as arrived.
        wait: Option<Wait>,
        /// Whether the round that the caller completes is the last one, and whether it is refused after the last one.
        once: bool,
    },
    /// Stops waiting.
    Cancel {
        /// The caller.
        id: Id,
        /// Whether to ignore this id from now on, because an arrival of it may still be on its way.
        tombstone: bool,
    },
}

/// The state of one barrier.
///
/// Laws:
/// - no caller passes before as many have arrived as the barrier has parties;
/// - the callers that complete a round pass together, and each passes once;
/// - a late arrival of a caller that left with a tombstone does not count;
/// - no caller that asks for a single round passes after the last round.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    parties: u64,
    arrived: Watchers,
    /// The callers that passed, and those that left with a tombstone. Neither count when they arrive again.
    passed: Tombstones,
    /// When the last round is forgotten, if there was one.
    closed_until: Timestamp,
}

impl State {
    fn arrive(
        &mut self,
        id: Id,
        parties: u64,
        wait: Option<Wait>,
        once: bool,
        context: &mut Context<'_>,
    ) -> Reply {
        if once && self.closed_until > context.now {
            self.arrived.leave(id);
            return Reply::Conflict;
        }
        if !self.arrived.has(id) {
            self.parties = parties;
        }
        let others = self.arrived.len() as u64 - u64::from(self.arrived.has(id));
        if others + 1 >= self.parties {
            self.arrived.leave(id);
            self.passed.add(id, context.now);
            self.arrived.ids().for_each(|id| self.passed.add(id, context.now));
            self.arrived.dismiss(Signal::Wake, context);
            if once {
                self.closed_until = context.now + KEEP;
            }
            return self.pass(id, wait);
        }
        self.arrived.watch(id, wait, None, context.now)
    }

    fn pass(&mut self, id: Id, wait: Option<Wait>) -> Reply {
        if Wait::is_answered_once(wait) {
            self.passed.forget(id);
        }
        Reply::Done
    }

    fn forget(&mut self, now: Timestamp) {
        self.arrived.forget_dead(now);
        self.passed.forget_until(now);
        if self.closed_until <= now {
            self.closed_until = Timestamp::default();
        }
    }

    fn is_closed(&self) -> bool {
        self.closed_until > Timestamp::default()
    }
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.forget(context.now);
        match *request {
            Request::Arrive { id, wait, .. } if self.passed.has(id) => self.pass(id, wait),
            Request::Arrive { id, parties, wait, once } => self.arrive(id, parties, wait, once, context),
            Request::Cancel { id, tombstone } => {
                self.arrived.leave(id);
                if tombstone {
                    self.passed.add(id, context.now);
                } else {
                    self.passed.forget(id);
                }
                Reply::Cancelled
            }
        }
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context.now);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        self.passed.next_end().into_iter().chain(self.is_closed().then_some(self.closed_until)).min()
    }

    fn users(&self) -> usize {
        self.arrived.len()
    }

    fn is_idle(&self) -> bool {
        self.arrived.is_empty() && self.passed.is_empty() && !self.is_closed()
    }

    fn is_in_use(&self) -> bool {
        !self.arrived.is_empty() || self.is_closed()
    }

    fn lasts_until(&self) -> Timestamp {
        self.arrived.lasts_until().max(self.passed.lasts_until()).max(self.closed_until)
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        self.arrived.place(id)
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let (waiting, closed) = (self.arrived.len() as u64, self.closed_until > now);
        Inspection { size: Some(self.parties), waiting, fired: Some(closed), ..Inspection::default() }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        self.arrived.dismiss(Signal::Deleted, context);
        self.closed_until = Timestamp::default();
    }
}
