//! The semaphore: a number of permits that are held for a time, first come first served.
//!
//! The read/write lock is the same with as many permits as can be counted: readers take one, writers take all.

mod holders;

use super::{
    Context, HoldRequest, IdempotencyKey, Reply, Signal, Wait,
    crowd::{WaitQueue, Waiter},
    inspection::Inspection,
};
use crate::{clock::Timestamp, id::Id};
use holders::Holders;
use std::time::Duration;

/// More permits than this cannot be told apart: what exceeds it counts as this many.
pub const MAX_SIZE: u64 = (1 << 53) - 1;

/// What is asked of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Permits {
    /// How many permits there are: from now on, for everybody. Zero lets nobody in.
    pub size: u64,
    /// How many to take, all or nothing.
    pub permits: u64,
    /// The hold's name: the attempt's id, or one that a client has chosen. Whoever asks with a name that is held
    /// already has it, its expiry unchanged.
    pub key: Id,
}

/// What can be asked of a semaphore. `Renew` and `Release` name the hold, `Cancel` the attempt.
pub type Request = HoldRequest<Permits>;

/// The state of one semaphore.
#[derive(Clone, Debug, Default)]
pub struct State {
    size: u64,
    last_fence: u64,
    holders: Holders,
    crowd: WaitQueue<Permits>,
}

/// Carries out one request on one semaphore.
///
/// Laws: the permits of unexpired holds never exceed the size they were granted under; fences rise; waiters are
/// served in the order they joined (one who does not fit yet is not passed), the dead ones skipped and those refused
/// who want more than there are; every request may be repeated with the same id; a repeated request does not resize;
/// of a renewal and a release by name no copy counts after one that said that it was repeated.
pub fn step(state: &mut State, request: &Request, context: &mut Context<'_>) -> Reply {
    state.forget(context.now);
    let reply = match *request {
        HoldRequest::Acquire { id, lease, wait, ask } => state.acquire(id, lease, wait, ask, context),
        HoldRequest::Renew { id, lease, once } => state.renew(id, lease, once, context),
        HoldRequest::Release { id, tombstone, once } => state.release(id, tombstone, once, context),
        HoldRequest::Cancel { id, tombstone } => state.cancel(id, tombstone, context),
        HoldRequest::Evict { of, up_to } => state.evict(of, up_to, context),
    };
    state.remind(context);
    reply
}

impl super::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        step(self, request, context)
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context.now);
        self.hand_over(context);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let WaitQueue { tombstones, .. } = &self.crowd;
        let ends = [self.holders.next_end(), self.crowd.head_ends(), tombstones.next_end()];
        ends.into_iter().flatten().min()
    }

    fn has_waiters(&self) -> bool {
        !self.crowd.queue.is_empty()
    }

    fn users(&self) -> usize {
        self.holders.len() + self.crowd.queue.len()
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.crowd.is_empty()
    }

    fn last_fence(&self) -> u64 {
        self.last_fence
    }

    fn raise_fence(&mut self, fence: u64) {
        self.last_fence = self.last_fence.max(fence);
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let holders = self.holders.inspect(now);
        Inspection {
            size: Some(self.size),
            used: Some(holders.iter().map(|held| held.permits).sum()),
            holders,
            waiting: self.crowd.queue.len() as u64,
            ..Inspection::default()
        }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        self.crowd.queue.ids().for_each(|id| context.notify(id, Signal::Deleted));
        self.crowd = WaitQueue::default();
        self.holders = Holders::default();
    }
}

impl State {
    /// The holds in force: name, fence, permits, end.
    #[must_use]
    pub fn holders(&self) -> Vec<(Id, u64, u64, Timestamp)> {
        self.holders.list()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.crowd.queue.len()
    }
}

impl State {
    fn acquire(
        &mut self,
        id: Id,
        lease: Duration,
        wait: Option<Wait>,
        mut ask: Permits,
        context: &mut Context<'_>,
    ) -> Reply {
        if self.crowd.tombstones.has(id) {
            return self.granted_to(&ask).unwrap_or(Reply::Cancelled);
        }
        ask.permits = ask.permits.min(MAX_SIZE);
        // Who was handed what it waited for asks again to confirm it: the size may be another by now.
        if self.crowd.queue.get(id).is_none() && !self.holders.is_known(id) {
            self.size = ask.size.min(MAX_SIZE);
        }
        if !self.crowd.may_be_overtaken(wait) {
            self.hand_over(context);
        }
        let overtakes = self.crowd.may_be_overtaken(wait);
        let in_line = self.crowd.queue.contains(id);
        let reply = self.take(id, lease, wait, ask, overtakes, context.now);
        // What who overtakes leaves, or its size has opened, is for those who wait.
        if overtakes || in_line && !self.crowd.queue.contains(id) {
            self.hand_over(context);
        }
        reply
    }

    /// Has it, is put in the queue, or is sent away.
    fn take(
        &mut self,
        id: Id,
        lease: Duration,
        wait: Option<Wait>,
        ask: Permits,
        overtakes: bool,
        now: Timestamp,
    ) -> Reply {
        if let Some(reply) = self.granted_to(&ask) {
            self.crowd.queue.leave(id);
            self.holders.confirm(ask.key, id, now, lease);
            return reply;
        }
        if self.never_fits(ask.permits) {
            self.refuse(id, now);
            return Reply::Cancelled;
        }
        let is_next = || self.crowd.queue.head().is_none_or(|(head, _)| head == id);
        if self.fits(ask.permits) && (overtakes || is_next()) {
            self.crowd.queue.leave(id);
            return Reply::Granted { fence: self.grant(id, &ask, now, lease, false) };
        }
        let Some(wait) = wait else {
            self.crowd.queue.leave(id);
            let retry_after = self.holders.next_end().map_or(Duration::ZERO, |end| end.since(now));
            return Reply::Busy { retry_after };
        };
        self.enqueue(id, Waiter::new(lease, wait, ask, now), now)
    }

    fn renew(
        &mut self,
        id: Id,
        lease: Duration,
        once: Option<IdempotencyKey>,
        context: &mut Context<'_>,
    ) -> Reply {
        if self.crowd.tombstones.is_late(once, context.now) {
            return self.holders.fence(id).map_or(Reply::Lost, |fence| Reply::Renewed { fence });
        }
        if let Some(fence) = self.holders.renew(id, context.now + lease) {
            return Reply::Renewed { fence };
        }
        // A waiter that comes with an old grant is not given a new one here: its fence is another.
        if !self.crowd.queue.contains(id) {
            self.hand_over(context);
        }
        Reply::Lost
    }

    fn release(
        &mut self,
        id: Id,
        tombstone: bool,
        once: Option<IdempotencyKey>,
        context: &mut Context<'_>,
    ) -> Reply {
        if tombstone {
            self.crowd.tombstones.add(id, context.now);
        }
        if self.crowd.tombstones.is_late(once, context.now) || !self.holders.end(id) {
            return Reply::NotHeld;
        }
        self.hand_over(context);
        Reply::Released
    }

    fn cancel(&mut self, id: Id, tombstone: bool, context: &mut Context<'_>) -> Reply {
        if tombstone {
            self.crowd.tombstones.add(id, context.now);
        }
        self.crowd.queue.leave(id);
        self.holders.end_attempt(id);
        self.hand_over(context);
        Reply::Cancelled
    }

    fn evict(&mut self, of: Option<Id>, up_to: u64, context: &mut Context<'_>) -> Reply {
        if !self.holders.end_up_to(of, up_to) {
            return Reply::NotHeld;
        }
        self.hand_over(context);
        Reply::Released
    }

    fn forget(&mut self, now: Timestamp) {
        self.holders.forget_until(now);
        self.crowd.tombstones.forget_until(now);
        self.crowd.queue.forget_until(now);
    }

    fn granted_to(&self, ask: &Permits) -> Option<Reply> {
        self.holders.fence(ask.key).map(|fence| Reply::Granted { fence })
    }

    fn fits(&self, permits: u64) -> bool {
        self.holders.taken().checked_add(permits).is_some_and(|taken| taken <= self.size)
    }

    /// More than there are, or will be unless somebody raises the size.
    fn never_fits(&self, permits: u64) -> bool {
        self.size > 0 && permits > self.size
    }

    /// Asking again is answered alike, so that it does not resize.
    fn refuse(&mut self, id: Id, now: Timestamp) {
        self.crowd.queue.leave(id);
        self.crowd.tombstones.add(id, now);
    }

    fn grant(&mut self, id: Id, ask: &Permits, now: Timestamp, lease: Duration, unconfirmed: bool) -> u64 {
        let fence = (self.last_fence + 1).max(now.as_micros());
        self.last_fence = fence;
        self.holders.add(id, ask, now, now + lease, fence, unconfirmed);
        fence
    }

    /// Serves the living waiters at the head while there are permits; one that may be overtaken is only woken, and so
    /// is one whose permits can never be had.
    fn hand_over(&mut self, context: &mut Context<'_>) {
        while let Some((id, &waiter)) = self.crowd.queue.head() {
            if waiter.live_until <= context.now {
                self.crowd.queue.leave(id);
            } else if self.holders.fence(waiter.ask.key).is_some() {
                self.crowd.queue.leave(id);
                self.holders.know(waiter.ask.key, id);
                context.notify(id, Signal::Wake);
            } else if self.never_fits(waiter.ask.permits) {
                self.refuse(id, context.now);
                context.notify(id, Signal::Wake);
            } else if !self.fits(waiter.ask.permits) {
                return;
            } else if waiter.wait.fair {
                self.crowd.queue.leave(id);
                let unconfirmed = waiter.wait.live.is_some();
                let fence = self.grant(id, &waiter.ask, context.now, waiter.grant(), unconfirmed);
                context.notify(id, Signal::Granted { fence });
            } else {
                self.crowd.queue.join(id, waiter.woken(context.now));
                return context.notify(id, Signal::Wake);
            }
        }
    }

    fn enqueue(&mut self, id: Id, waiter: Waiter<Permits>, now: Timestamp) -> Reply {
        let recheck_at = self.holders.next_end().map_or(waiter.recheck_at, |end| end.min(waiter.recheck_at));
        self.crowd.queue.join(id, Waiter { recheck_at, ..waiter });
        self.crowd.queue.keep(waiter.live_until);
        let ahead = self.crowd.queue.ahead(id);
        Reply::Queued { ahead, recheck_after: super::recheck(waiter.wait, self.time_left(now), ahead) }
    }

    /// Who is first in line was told when to ask again; it is told anew when a hold ends before that now.
    fn remind(&mut self, context: &mut Context<'_>) {
        let Some((id, &waiter)) = self.crowd.queue.head() else { return };
        let Some(end) = self.holders.next_end().filter(|end| *end < waiter.recheck_at) else { return };
        if waiter.wait.live.is_some() {
            self.crowd.queue.join(id, Waiter { recheck_at: end, ..waiter });
            context.notify(id, Signal::Recheck { within: end.since(context.now) });
        }
    }

    /// When the next hold ends by itself, if any does.
    fn time_left(&self, now: Timestamp) -> Duration {
        self.holders.next_end().map_or(Duration::MAX, |end| end.since(now))
    }
}

#[cfg(test)]
mod tests;
