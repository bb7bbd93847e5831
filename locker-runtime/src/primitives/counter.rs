//! The counter: a number that many change and nobody loses a change of.

use super::{Context, IdempotencyKey, KEEP, Reply, inspection::Inspection, remembered::ReplyCache};
use crate::{clock::Timestamp, id::Id};

/// What can be asked of a counter. Every answer is the value after it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Add `by`; what is not within +-(2^53 - 1), or leaves that range, is refused.
    Add {
        /// The attempt: repeating it does not add again, and is answered with its sum again. Of 0, in a store of the
        /// caller's own process, nothing is remembered.
        id: Id,
        /// How much, negative to subtract.
        by: i64,
    },
    /// Make it `value`.
    Set {
        /// The attempt.
        once: IdempotencyKey,
        /// The new value.
        value: i64,
    },
    /// Only look.
    Get,
}

/// The state of one counter.
#[derive(Clone, Debug, Default)]
pub struct State {
    value: i64,
    until: Timestamp,
    /// What was answered to additions, and to sets that were repeated.
    answered: ReplyCache<i64>,
}

/// The id of additions that nobody repeats.
pub(crate) const ONCE: Id = Id::ZERO;

/// The largest value either way: what every store can count to exactly.
pub const MAX_VALUE: i64 = (1 << 53) - 1;

/// Whether every store can count with it exactly.
pub(crate) fn is_exact(number: i64) -> bool {
    number.unsigned_abs() <= MAX_VALUE.unsigned_abs()
}

/// Carries out one request on one counter.
///
/// Law: the value is the last one set plus everything added since, each addition once; no copy of a set
/// counts after one that said that it was repeated.
pub fn step(state: &mut State, request: &Request, context: &mut Context<'_>) -> Reply {
    state.forget(context.now);
    match *request {
        Request::Get => Reply::Value(state.value),
        Request::Add { id, by } => state.add(id, by, context.now),
        Request::Set { once, value } => state.set_once(once, value, context.now),
    }
}

impl State {
    fn add(&mut self, id: Id, by: i64, now: Timestamp) -> Reply {
        if let Some(sum) = self.answered.get(id) {
            return Reply::Value(*sum);
        }
        let sum = Some(by).filter(|by| is_exact(*by)).map(|by| self.value + by);
        let Some(sum) = sum.filter(|sum| is_exact(*sum)) else { return Reply::Conflict };
        if id != ONCE {
            self.answered.keep(id, sum, now);
        }
        self.set(sum, now)
    }

    fn set_once(
        &mut self,
        IdempotencyKey { attempt, repeated }: IdempotencyKey,
        value: i64,
        now: Timestamp,
    ) -> Reply {
        if let Some(answered) = self.answered.get(attempt) {
            return Reply::Value(*answered);
        }
        if repeated {
            self.answered.keep(attempt, value, now);
        }
        self.set(value, now)
    }

    fn set(&mut self, value: i64, now: Timestamp) -> Reply {
        (self.value, self.until) = (value, now + KEEP);
        Reply::Value(value)
    }

    fn forget(&mut self, now: Timestamp) {
        self.answered.forget_until(now);
        if self.until <= now {
            self.value = 0;
        }
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
        let kept = (self.value != 0).then_some(self.until);
        kept.into_iter().chain(self.answered.next_end()).min()
    }

    fn users(&self) -> usize {
        0
    }

    fn is_idle(&self) -> bool {
        self.value == 0 && self.answered.is_empty()
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let value = if self.until <= now { 0 } else { self.value };
        Inspection { value: Some(value), ..Inspection::default() }
    }

    fn delete(&mut self, _context: &mut Context<'_>) {
        *self = Self::default();
    }
}
