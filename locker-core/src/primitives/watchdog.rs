//! The watchdog: expires if it is not kicked in time, and stays expired until the next kick.

use super::{
    inspection::Inspection,
    parts::{idempotency::IdempotencyKey, tombstones::Tombstones, watchers::Watchers},
    protocol::{KEEP, Reply, Signal, Wait},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id};
use std::time::Duration;

/// How long a watchdog that was never kicked runs, counted from the first wait.
pub const FIRST_RUN: Duration = Duration::from_secs(60);

/// A request to a watchdog.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Returns whether it has expired, or waits for that if `wait` is given.
    Wait {
        /// The waiter.
        id: Id,
        /// How to wait. With `None` the reply is immediate.
        wait: Option<Wait>,
    },
    /// Sets the deadline to `expires` from now, earlier or later than the old one.
    Kick {
        /// The attempt.
        once: IdempotencyKey,
        /// The time until it expires.
        expires: Duration,
    },
    /// Stops waiting.
    Cancel {
        /// The waiter.
        id: Id,
    },
}

/// The state of one watchdog.
///
/// Laws:
/// - no wait gets `Expired` before the deadline of the last kick;
/// - every wait after the deadline gets it, until the next kick;
/// - no copy of a kick has an effect after a retry.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    deadline: Option<Timestamp>,
    watchers: Watchers,
    tombstones: Tombstones,
}

impl State {
    fn wait(&mut self, id: Id, wait: Option<Wait>, context: &Context<'_>) -> Reply {
        let left = self.deadline.get_or_insert(context.until(FIRST_RUN)).since(context.now);
        if left.is_zero() {
            self.watchers.leave(id);
            return Reply::Expired;
        }
        self.watchers.watch(id, wait, Some(left), context.now)
    }

    /// Moves the deadline. Waiters find a later deadline when they ask at the old one, but must be woken for an
    /// earlier one.
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
        self.watchers.forget_dead(now);
        self.tombstones.forget_until(now);
        if self.forgotten_at().is_some_and(|end| end <= now) {
            self.deadline = None;
        }
    }

    fn forgotten_at(&self) -> Option<Timestamp> {
        self.deadline.map(|deadline| deadline + KEEP)
    }
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.forget(context.now);
        match *request {
            Request::Wait { id, wait } => self.wait(id, wait, context),
            Request::Kick { once, expires } => self.kick(once, context.until(expires), context),
            Request::Cancel { id } => {
                self.watchers.leave(id);
                Reply::Cancelled
            }
        }
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

    fn is_in_use(&self) -> bool {
        self.deadline.is_some() || !self.watchers.is_empty()
    }

    fn lasts_until(&self) -> Timestamp {
        let forgotten = self.forgotten_at().unwrap_or_default();
        forgotten.max(self.watchers.lasts_until()).max(self.tombstones.lasts_until())
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        self.watchers.place(id)
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
