//! The results of runs: the last one as long as it is kept, and those for the waiters that it had.

use super::Begun;
use crate::{
    clock::Timestamp,
    id::Id,
    primitives::{
        parts::reply_cache::ReplyCache,
        protocol::TOMBSTONE,
        value::{MAX_VALUE, Value},
    },
};

/// The maximum of results for waiters.
const MOST: usize = 100;

/// A run that has succeeded.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Success {
    pub(super) what: Begun,
    pub(super) value: Value,
    /// Until when it counts for all callers. The epoch if it does not.
    pub(super) until: Timestamp,
    /// Until when it counts for those that waited for it, and its `Finish` is known.
    known_until: Timestamp,
    is_waited_for: bool,
}

impl Success {
    pub(super) fn new(what: Begun, value: &Value, until: Timestamp, now: Timestamp) -> Self {
        let until = if until > now { until } else { Timestamp::default() };
        Self { what, value: value.clone(), until, known_until: now + TOMBSTONE, is_waited_for: false }
    }

    fn is_kept(&self) -> bool {
        self.until > Timestamp::default()
    }

    /// Drops the value if nobody gets it.
    fn shrink(&mut self) {
        if !self.is_kept() && !self.is_waited_for {
            self.value = Value::default();
        }
    }

    fn ends(&self) -> Timestamp {
        self.until.max(self.known_until)
    }
}

/// The successes in their order. Only the last one counts for callers that did not wait for it.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Results {
    all: Vec<Success>,
    /// The fences of the runs that waiters have waited for.
    waiters: ReplyCache<u64>,
}

impl Results {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.waiters.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(|success| success.value.as_bytes().len()).sum()
    }

    /// Returns the success that counts for all callers.
    pub(super) fn kept(&self) -> Option<&Success> {
        self.all.last().filter(|last| last.is_kept())
    }

    /// Returns whether the run `id` is known to have succeeded.
    pub(super) fn has(&self, id: Id) -> bool {
        self.all.iter().any(|success| success.what.id == id)
    }

    /// Returns the result for a caller that has waited for it, or has run itself.
    pub(super) fn answer(
        &mut self,
        id: Id,
        slot: Option<Timestamp>,
        is_answered_once: bool,
    ) -> Option<Value> {
        let fence = self.waiters.get(id).copied();
        let is_of = |success: &&Success| success.what.id == id || Some(success.what.fence) == fence;
        let found = self
            .all
            .iter()
            .rev()
            .find(is_of)
            .filter(|success| success.what.id == id || success.what.covers(slot));
        let value = found.map(|success| success.value.clone());
        // Of an earlier slot: it waits again.
        if value.is_none() || is_answered_once {
            self.waiters.forget(id);
        }
        value
    }

    pub(super) fn add(&mut self, mut success: Success, waiters: impl Iterator<Item = Id>, now: Timestamp) {
        for id in waiters {
            self.waiters.keep(id, success.what.fence, now);
            success.is_waited_for = true;
        }
        // A caller with longer slots may have succeeded before.
        if let Some(last) = self.kept().filter(|_| success.is_kept() && success.what.slot.is_some()) {
            success.until = success.until.max(last.until);
        }
        self.all.push(success);
        self.keep_the_last_one();
        self.make_room();
    }

    /// Lets no other than the last one count for all callers.
    fn keep_the_last_one(&mut self) {
        let last = self.all.len().saturating_sub(1);
        for (at, success) in self.all.iter_mut().enumerate() {
            if at < last {
                success.until = Timestamp::default();
            }
            success.shrink();
        }
    }

    /// Forgets the first results for waiters if there are too many.
    fn make_room(&mut self) {
        let mut room = MAX_VALUE;
        let fit = self.all.iter().rev().take(MOST).take_while(|success| {
            let rest = room.checked_sub(success.value.as_bytes().len());
            room = rest.unwrap_or_default();
            rest.is_some()
        });
        let over = self.all.len() - fit.count();
        self.all.drain(..over);
    }

    pub(super) fn forget_waiter(&mut self, id: Id) {
        self.waiters.forget(id);
    }

    /// Lets none count for callers that have not waited for it.
    pub(super) fn keep_for_waiters_alone(&mut self) {
        self.all.iter_mut().for_each(|success| success.until = Timestamp::default());
        self.keep_the_last_one();
    }

    pub(super) fn forget_until(&mut self, now: Timestamp) {
        self.waiters.forget_until(now);
        for success in &mut self.all {
            if success.until <= now && success.is_kept() {
                success.until = Timestamp::default();
                success.shrink();
            }
        }
        self.all.retain(|success| success.ends() > now);
    }

    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.all.iter().map(Success::ends).chain(self.waiters.next_end()).min()
    }

    pub(super) fn lasts_until(&self) -> Timestamp {
        let all = self.all.iter().map(Success::ends).max().unwrap_or_default();
        all.max(self.waiters.lasts_until())
    }
}
