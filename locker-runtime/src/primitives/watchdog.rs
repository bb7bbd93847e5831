//! The watchdog: expires when it is not kicked in time, and stays expired until the next kick.

use super::{
    Context, IdempotencyKey, KEEP, Reply, Signal, Wait, inspection::Inspection, tombstones::Tombstones,
    watchers::Watchers,
};
use crate::{clock::Timestamp, id::Id};
use std::time::Duration;

/// How long a watchdog that was never kicked runs from the first wait on.
pub const FIRST_RUN: Duration = Duration::from_secs(60);

/// What can be asked of a watchdog.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Has it expired? `wait`: tell me when.
    Wait {
        /// The waiter.
        id: Id,
        /// How to wait; `None` answers at once.
        wait: Option<Wait>,
    },
    /// Let it expire `expires` from now, not earlier and not later.
    Kick {
        /// The attempt.
        once: IdempotencyKey,
        /// The time until it expires.
        expires: Duration,
    },
    /// Wait no longer.
    Cancel {
        /// The waiter.
        id: Id,
    },
}

/// The state of one watchdog.
#[derive(Clone, Debug, Default)]
pub struct State {
    deadline: Option<Timestamp>,
    watchers: Watchers,
    tombstones: Tombstones,
}

/// Carries out one request on one watchdog.
///
/// Laws: no wait is answered `Expired` before the deadline of the last kick; from then on every wait is, until the
/// next kick; no copy of a kick counts after one that said that it was repeated.
pub fn step(state: &mut State, request: &Request, context: &mut Context<'_>) -> Reply {
    state.forget(context.now);
    match *request {
        Request::Wait { id, wait } => state.wait(id, wait, context.now),
        Request::Kick { once, expires } => state.kick(once, context.now + expires, context),
        Request::Cancel { id } => {
            state.watchers.leave(id);
            Reply::Cancelled
        }
    }
}

impl State {
    fn wait(&mut self, id: Id, wait: Option<Wait>, now: Timestamp) -> Reply {
        let left = self.deadline.get_or_insert(now + FIRST_RUN).since(now);
        if left.is_zero() {
            self.watchers.leave(id);
            return Reply::Expired;
        }
        self.watchers.watch(id, wait, Some(left), now)
    }

    /// Those who wait find a later deadline when they ask at the old one; an earlier one they must be told.
    fn kick(&mut self, once: IdempotencyKey, deadline: Timestamp, context: &mut Context<'_>) -> Reply {
        if self.tombstones.is_late(Some(once), context.now) {
            return Reply::Done;
        }
        let old = self.deadline.replace(deadline);
        if old.is_some_and(|old| deadline < old) {
            self.watchers.dismiss(Signal::Wake, context);
        }
        Reply::Done
    }

    fn forget(&mut self, now: Timestamp) {
        self.watchers.forget_until(now);
        self.tombstones.forget_until(now);
        if self.forgotten_at().is_some_and(|end| end <= now) {
            self.deadline = None;
        }
    }

    fn forgotten_at(&self) -> Option<Timestamp> {
        self.deadline.map(|deadline| deadline + KEEP)
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
        self.forgotten_at().into_iter().chain(self.tombstones.next_end()).min()
    }

    fn users(&self) -> usize {
        self.watchers.len()
    }

    fn is_idle(&self) -> bool {
        self.deadline.is_none() && self.watchers.is_empty() && self.tombstones.is_empty()
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        Inspection {
            fired: self.deadline.map(|deadline| deadline <= now),
            waiting: self.watchers.len() as u64,
            resets_in: self.deadline.map(|deadline| deadline.since(now)),
            ..Inspection::default()
        }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        self.watchers.dismiss(Signal::Deleted, context);
        *self = Self::default();
    }
}
