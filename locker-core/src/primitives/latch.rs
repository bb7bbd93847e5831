//! The latch: opens for good after a number of count-downs.

use super::{
    inspection::Inspection,
    parts::{tombstones::Tombstones, watchers::Watchers},
    protocol::{KEEP, Reply, Signal, Wait},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id};

/// A request to a latch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Returns whether it is open, or waits for that if `wait` is given.
    Wait {
        /// The waiter.
        id: Id,
        /// The number of count-downs that open it. The most recent value applies to all callers.
        count: u64,
        /// How to wait. With `None` the reply is immediate.
        wait: Option<Wait>,
    },
    /// Counts down by one.
    CountDown {
        /// The attempt. Repeating it does not count again.
        id: Id,
        /// As for `Wait`.
        count: u64,
    },
    /// Stops waiting.
    Cancel {
        /// The waiter.
        id: Id,
    },
}

/// The state of one latch.
///
/// Laws:
/// - no wait is served before `count` different count-downs;
/// - every wait after them is served;
/// - every wait that is queued when it opens is served, whatever the count is when it asks again.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    count: u64,
    counted: u64,
    /// When the count-downs are forgotten, unless another one comes.
    until: Timestamp,
    seen: Tombstones,
    watchers: Watchers,
    /// The waiters that were queued when it opened. The count may have changed when they ask again.
    let_through: Tombstones,
}

impl State {
    fn wait(&mut self, id: Id, count: u64, wait: Option<Wait>, context: &mut Context<'_>) -> Reply {
        if self.let_through.has(id) {
            if Wait::is_answered_once(wait) {
                self.let_through.forget(id);
            }
            return Reply::Done;
        }
        if !self.watchers.has(id) {
            self.count = count;
        }
        if self.counted >= self.count {
            self.watchers.leave(id);
            self.open(context);
            return Reply::Done;
        }
        self.watchers.watch(id, wait, None, context.now)
    }

    fn count_down(&mut self, id: Id, count: u64, context: &mut Context<'_>) -> Reply {
        self.count = count;
        if !self.seen.has(id) {
            self.seen.add(id, context.now);
            self.counted = self.counted.saturating_add(1);
            self.until = context.now + KEEP;
        }
        self.open(context);
        Reply::Value(i64::try_from(self.count.saturating_sub(self.counted)).unwrap_or(i64::MAX))
    }

    fn open(&mut self, context: &mut Context<'_>) {
        if self.counted >= self.count {
            self.watchers.ids().for_each(|id| self.let_through.add(id, context.now));
            self.watchers.dismiss(Signal::Wake, context);
        }
    }

    fn forget(&mut self, now: Timestamp) {
        self.watchers.forget_dead(now);
        self.seen.forget_until(now);
        self.let_through.forget_until(now);
        if self.until <= now {
            self.counted = 0;
        }
    }
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.forget(context.now);
        match *request {
            Request::Wait { id, count, wait } => self.wait(id, count, wait, context),
            Request::CountDown { id, count } => self.count_down(id, count, context),
            Request::Cancel { id } => {
                self.watchers.leave(id);
                self.let_through.forget(id);
                Reply::Cancelled
            }
        }
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context.now);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let kept = (self.counted > 0).then_some(self.until);
        kept.into_iter().chain(self.seen.next_end()).chain(self.let_through.next_end()).min()
    }

    fn users(&self) -> usize {
        self.watchers.len()
    }

    fn is_idle(&self) -> bool {
        self.counted == 0 && self.watchers.is_empty() && self.seen.is_empty() && self.let_through.is_empty()
    }

    fn is_in_use(&self) -> bool {
        self.counted > 0 || !self.watchers.is_empty()
    }

    fn lasts_until(&self) -> Timestamp {
        let counted = if self.counted > 0 { self.until } else { Timestamp::default() };
        let kept = self.seen.lasts_until().max(self.let_through.lasts_until());
        counted.max(kept).max(self.watchers.lasts_until())
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        self.watchers.place(id)
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let counted = if self.until <= now { 0 } else { self.counted };
        Inspection {
            size: Some(self.count),
            used: Some(counted),
            waiting: self.watchers.len() as u64,
            fired: Some(counted >= self.count),
            ..Inspection::default()
        }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        (self.counted, self.seen) = (0, Tombstones::default());
        self.watchers.dismiss(Signal::Deleted, context);
    }
}
