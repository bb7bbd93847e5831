//! The counter: a number that many callers change without losing a change.

use super::{
    inspection::Inspection,
    parts::{idempotency::IdempotencyKey, reply_cache::ReplyCache},
    protocol::{KEEP, Reply},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id, ranges::MAX_COUNT};

/// A request to a counter. The reply is the value after the request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Adds `by`. The reply is `Conflict` if `by` or the sum is outside of +-(2^53 - 1).
    Add {
        /// The attempt. Repeating it does not add again and returns the same sum. A store in the caller's own process
        /// remembers nothing of the id 0.
        id: Id,
        /// The amount, negative to subtract.
        by: i64,
    },
    /// Sets the value.
    Set {
        /// The attempt.
        once: IdempotencyKey,
        /// The new value.
        value: i64,
    },
    /// Returns the value unchanged.
    Get,
}

/// The state of one counter.
///
/// Laws:
/// - the value is the last one set plus everything added since, each addition once;
/// - no copy of a set has an effect after a retry.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    value: i64,
    until: Timestamp,
    /// The replies to additions and to retried sets.
    answered: ReplyCache<i64>,
}

/// The id of additions that are not repeated.
pub const ONCE: Id = Id::ZERO;

/// The greatest value, positive or negative, that every store represents exactly.
pub const MAX_VALUE: i64 = MAX_COUNT.cast_signed();

/// Returns whether every store represents the number exactly.
#[must_use]
pub fn is_exact(number: i64) -> bool {
    number.unsigned_abs() <= MAX_COUNT
}

impl State {
    fn add(&mut self, id: Id, by: i64, now: Timestamp) -> Reply {
        if let Some(sum) = self.answered.get(id) {
            return Reply::Value(*sum);
        }
        let sum = Some(by).filter(|by| is_exact(*by)).and_then(|by| self.value.checked_add(by));
        let Some(sum) = sum.filter(|sum| is_exact(*sum)) else { return Reply::Conflict };
        if id != ONCE {
            self.answered.keep(id, sum, now);
        }
        self.set(sum, now)
    }

    fn set_once(
        &mut self,
        IdempotencyKey { attempt, retried }: IdempotencyKey,
        value: i64,
        now: Timestamp,
    ) -> Reply {
        if let Some(answered) = self.answered.get(attempt) {
            return Reply::Value(*answered);
        }
        if retried {
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

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.forget(context.now);
        match *request {
            Request::Get => Reply::Value(self.value),
            Request::Add { id, by } => self.add(id, by, context.now),
            Request::Set { once, value } => self.set_once(once, value, context.now),
        }
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

    fn is_in_use(&self) -> bool {
        self.value != 0
    }

    fn lasts_until(&self) -> Timestamp {
        let kept = if self.value == 0 { Timestamp::default() } else { self.until };
        kept.max(self.answered.lasts_until())
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let value = if self.until <= now { 0 } else { self.value };
        Inspection { value: Some(value), ..Inspection::default() }
    }

    fn delete(&mut self, _context: &mut Context<'_>) {
        *self = Self::default();
    }
}
