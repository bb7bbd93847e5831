//! The barrier: callers wait for each other and go on together, round after round.

use super::{
    Context, Reply, Signal, Wait, inspection::Inspection, tombstones::Tombstones, watchers::Watchers,
};
use crate::{clock::Timestamp, id::Id};

/// What can be asked of a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// I am here; let me go on when `parties` are.
    Arrive {
        /// The caller.
        id: Id,
        /// How many go on together: from now on, for everybody.
        parties: u64,
        /// How to wait; `None` answers at once and does not count as being here.
        wait: Option<Wait>,
    },
    /// Wait no longer.
    Cancel {
        /// The caller.
        id: Id,
        /// Do not count this id from now on: an arrival of its may still be on its way.
        tombstone: bool,
    },
}

/// The state of one barrier.
#[derive(Clone, Debug, Default)]
pub struct State {
    parties: u64,
    here: Watchers,
    /// Those who have passed, and those who have left and may seem to arrive once more: none of them counts.
    passed: Tombstones,
}

/// Carries out one request on one barrier.
///
/// Laws: nobody passes before as many are there as the barrier has parties; those who made a round full pass
/// together, and each passes once; who has left with a tombstone is not counted when an arrival of its comes late.
pub fn step(state: &mut State, request: &Request, context: &mut Context<'_>) -> Reply {
    state.forget(context.now);
    match *request {
        Request::Arrive { id, wait, .. } if state.passed.has(id) => state.go_on(id, wait),
        Request::Arrive { id, parties, wait } => state.arrive(id, parties, wait, context),
        Request::Cancel { id, tombstone } => {
            state.here.leave(id);
            if tombstone {
                state.passed.add(id, context.now);
            } else {
                state.passed.forget(id);
            }
            Reply::Cancelled
        }
    }
}

impl State {
    fn arrive(&mut self, id: Id, parties: u64, wait: Option<Wait>, context: &mut Context<'_>) -> Reply {
        if !self.here.has(id) {
            self.parties = parties;
        }
        let others = self.here.len() as u64 - u64::from(self.here.has(id));
        if others + 1 >= self.parties {
            self.here.leave(id);
            self.passed.add(id, context.now);
            self.here.ids().for_each(|id| self.passed.add(id, context.now));
            self.here.dismiss(Signal::Wake, context);
            return self.go_on(id, wait);
        }
        self.here.watch(id, wait, None, context.now)
    }

    fn go_on(&mut self, id: Id, wait: Option<Wait>) -> Reply {
        if Wait::is_answered_once(wait) {
            self.passed.forget(id);
        }
        Reply::Done
    }

    fn forget(&mut self, now: Timestamp) {
        self.here.forget_dead(now);
        self.passed.forget_until(now);
    }
}

impl super::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        step(self, request, context)
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context.now);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        self.passed.next_end()
    }

    fn users(&self) -> usize {
        self.here.len()
    }

    fn is_idle(&self) -> bool {
        self.here.is_empty() && self.passed.is_empty()
    }

    fn inspect(&self, _now: Timestamp) -> Inspection {
        let waiting = self.here.len() as u64;
        Inspection { size: Some(self.parties), waiting, ..Inspection::default() }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        self.here.dismiss(Signal::Deleted, context);
    }
}
