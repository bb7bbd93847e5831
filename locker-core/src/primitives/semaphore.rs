//! The semaphore: a number of permits that are held for a time, first come first served.

mod holders;
mod permits;

use super::{
    inspection::Inspection,
    parts::{
        hold_request::HoldRequest,
        idempotency::IdempotencyKey,
        wait_queue::{self, WaitQueue, Waiter},
    },
    protocol::{Reply, Signal, Wait},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id, ranges::MAX_COUNT};
use holders::Holders;
pub use permits::Permits;
use std::time::Duration;

/// The greatest number of permits. Greater numbers are clamped to it.
pub const MAX_SIZE: u64 = MAX_COUNT;

/// A request to a semaphore. `Renew` and `Release` name the hold, `Cancel` the attempt.
pub type Request = HoldRequest<Permits>;

/// The state of one semaphore.
///
/// Laws:
/// - the permits of unexpired holds never exceed the size that they were granted under;
/// - fences rise;
/// - waiters are served in the order they joined: no caller passes a fair waiter that does not fit yet, waiters that
///   disappeared are skipped, and a waiter that needs more permits than exist is refused;
/// - every request may be repeated with the same id, and a repeated request does not resize;
/// - no copy of a renewal or release with an idempotency key has an effect after a retry.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    size: u64,
    last_fence: u64,
    holders: Holders,
    waiters: WaitQueue<Permits>,
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        if let HoldRequest::Acquire { id, .. } = request {
            self.waiters.hear(*id, context);
        }
        self.forget(context);
        let reply = match *request {
            HoldRequest::Acquire { id, lease, wait, ask } => self.acquire(id, lease, wait, ask, context),
            HoldRequest::Renew { id, lease, once } => self.renew(id, lease, once, context),
            HoldRequest::Release { id, tombstone, once } => self.release(id, tombstone, once, context),
            HoldRequest::Cancel { id, tombstone } => self.cancel(id, tombstone, context),
            HoldRequest::Evict { of, up_to } => self.evict(of, up_to, context),
        };
        self.remind(context);
        reply
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context);
        self.hand_over(context);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let WaitQueue { tombstones, .. } = &self.waiters;
        let ends = [self.holders.next_end(), self.waiters.head_ends(), tombstones.next_end()];
        ends.into_iter().flatten().min()
    }

    fn has_waiters(&self) -> bool {
        !self.waiters.queue.is_empty()
    }

    fn users(&self) -> usize {
        self.holders.len() + self.waiters.queue.len()
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    fn is_in_use(&self) -> bool {
        self.users() > 0
    }

    fn lasts_until(&self) -> Timestamp {
        self.holders.lasts_until().max(self.waiters.lasts_until())
    }

    fn is_held(&self, name: Id, now: Timestamp) -> bool {
        self.holders.is_held(name, now)
    }

    fn is_free_for(&self, request: &Request) -> bool {
        matches!(request, HoldRequest::Acquire { ask, .. } if self.fits(ask.permits.min(MAX_SIZE)))
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        self.waiters.place(id)
    }

    fn held_until(&self) -> Timestamp {
        self.holders.lasts_until()
    }

    fn held_fence(&self) -> u64 {
        self.holders.highest_fence()
    }

    fn last_fence(&self) -> u64 {
        self.last_fence
    }

    fn raise_fence(&mut self, fence: u64) {
        self.last_fence = self.last_fence.max(fence);
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let holders = self.holders.inspect(now);
        let (waiters, waiting) = self.waiters.inspect(now);
        Inspection {
            size: Some(self.size),
            used: Some(holders.iter().map(|held| held.permits).sum()),
            holders,
            waiting,
            waiters,
            ..Inspection::default()
        }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        self.waiters.queue.ids().for_each(|id| context.notify(id, Signal::Deleted));
        self.waiters = WaitQueue::default();
        self.holders = Holders::default();
    }
}

impl State {
    /// Returns the current holds: name, fence, permits, end.
    #[must_use]
    pub fn holders(&self) -> Vec<(Id, u64, u64, Timestamp)> {
        self.holders.list()
    }

    /// Returns the number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.queue.len()
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
        if self.waiters.tombstones.has(id) {
            return self.granted_to(&ask).unwrap_or(Reply::Cancelled);
        }
        ask.permits = ask.permits.min(MAX_SIZE);
        // A waiter that was granted its permits asks again to confirm, with a size that may be outdated.
        if self.waiters.queue.get(id).is_none() && !self.holders.is_known(id) {
            self.size = ask.size.min(MAX_SIZE);
        }
        if !self.waiters.may_be_overtaken(wait) {
            self.hand_over(context);
        }
        let overtakes = self.waiters.may_be_overtaken(wait);
        let was_queued = self.waiters.queue.contains(id);
        let reply = self.take(id, lease, wait, ask, overtakes, context);
        // The permits that the caller left over, or that its size added, are for the waiters.
        if overtakes || was_queued && !self.waiters.queue.contains(id) {
            self.hand_over(context);
        }
        reply
    }

    /// Grants the permits, queues the caller, or refuses it.
    fn take(
        &mut self,
        id: Id,
        lease: Duration,
        wait: Option<Wait>,
        ask: Permits,
        overtakes: bool,
        context: &Context<'_>,
    ) -> Reply {
        let now = context.now;
        if let Some(reply) = self.granted_to(&ask) {
            self.waiters.queue.leave(id);
            self.holders.confirm(ask.key, id, context.until(lease));
            return reply;
        }
        if self.never_fits(ask.permits) {
            self.refuse(id, now);
            return Reply::Cancelled;
        }
        let is_next = || self.waiters.queue.head().is_none_or(|(head, _)| head == id);
        if context.quiet.is_none() && self.fits(ask.permits) && (overtakes || is_next()) {
            self.waiters.queue.leave(id);
            return Reply::Granted { fence: self.grant(id, &ask, lease, false, context) };
        }
        let Some(wait) = wait else {
            self.waiters.queue.leave(id);
            let retry_after = self.holders.next_end().map_or(Duration::ZERO, |end| end.since(now));
            return Reply::Busy { retry_after };
        };
        self.enqueue(id, Waiter::new(lease, wait, ask, now), context)
    }

    fn renew(
        &mut self,
        id: Id,
        lease: Duration,
        once: Option<IdempotencyKey>,
        context: &mut Context<'_>,
    ) -> Reply {
        if self.waiters.tombstones.is_late(once, context.now) {
            return self.holders.fence(id).map_or(Reply::Lost, |fence| Reply::Renewed { fence });
        }
        if let Some(fence) = self.holders.renew(id, context.until(lease)) {
            return Reply::Renewed { fence };
        }
        // A waiter that renews an old grant gets no new one here, since its fence would be wrong.
        if !self.waiters.queue.contains(id) {
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
            self.waiters.tombstones.add(id, context.now);
        }
        if self.waiters.tombstones.is_late(once, context.now) || !self.holders.end(id) {
            return Reply::NotHeld;
        }
        self.hand_over(context);
        Reply::Released
    }

    fn cancel(&mut self, id: Id, tombstone: bool, context: &mut Context<'_>) -> Reply {
        if tombstone {
            self.waiters.tombstones.add(id, context.now);
        }
        self.waiters.queue.leave(id);
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

    fn forget(&mut self, context: &Context<'_>) {
        self.waiters.forget_until(context.now);
        let waiters = &mut self.waiters;
        self.holders.forget_until(context.now, |attempt| waiters.silence(attempt, context));
    }

    fn granted_to(&self, ask: &Permits) -> Option<Reply> {
        self.holders.fence(ask.key).map(|fence| Reply::Granted { fence })
    }

    fn fits(&self, permits: u64) -> bool {
        self.holders.taken().checked_add(permits).is_some_and(|taken| taken <= self.size)
    }

    /// Returns whether there are fewer permits in all, so that only a greater size could help.
    fn never_fits(&self, permits: u64) -> bool {
        self.size > 0 && permits > self.size
    }

    /// Refuses an attempt for good: asking again gets the same reply and does not resize.
    fn refuse(&mut self, id: Id, now: Timestamp) {
        self.waiters.queue.leave(id);
        self.waiters.tombstones.add(id, now);
    }

    fn grant(
        &mut self,
        id: Id,
        ask: &Permits,
        lease: Duration,
        unconfirmed: bool,
        context: &Context<'_>,
    ) -> u64 {
        let fence = context.fence(self.last_fence);
        self.last_fence = fence;
        self.holders.add(id, ask, context.now, context.until(lease), fence, unconfirmed);
        fence
    }

    /// Serves waiters from the head while there are permits. A waiter that may be overtaken is only woken, as is a
    /// waiter that can never be served. In a quiet time the head of the queue gets
    /// the rest of that time, after which it asks again.
    fn hand_over(&mut self, context: &mut Context<'_>) {
        loop {
            self.waiters.pass_over(context);
            let Some((id, &waiter)) = self.waiters.queue.head() else { return };
            if self.holders.fence(waiter.ask.key).is_some() {
                self.waiters.queue.leave(id);
                self.holders.know(waiter.ask.key, id);
                context.notify(id, Signal::Wake);
            } else if self.never_fits(waiter.ask.permits) {
                self.refuse(id, context.now);
                context.notify(id, Signal::Wake);
            } else if !self.fits(waiter.ask.permits) {
                return;
            } else if let Some(within) = context.quiet {
                return context.notify(id, Signal::Recheck { within });
            } else if waiter.wait.fair {
                self.waiters.queue.leave(id);
                let (lease, unconfirmed) = (waiter.grant(id, context), !waiter.is_here(id, context));
                let fence = self.grant(id, &waiter.ask, lease, unconfirmed, context);
                // A waiter of the embedded store confirms by a call that costs little.
                let is_confirmed = waiter.wait.live.is_some() && !unconfirmed;
                let granted = Signal::Granted { fence };
                let signal = if is_confirmed { waiter.signal(id, fence, context) } else { granted };
                context.notify(id, signal);
            } else {
                self.waiters.queue.join(id, waiter.woken(context));
                return context.notify(id, Signal::Wake);
            }
        }
    }

    fn enqueue(&mut self, id: Id, waiter: Waiter<Permits>, context: &Context<'_>) -> Reply {
        let now = context.now;
        let recheck_at = self.holders.next_end().map_or(waiter.recheck_at, |end| end.min(waiter.recheck_at));
        self.waiters.queue.join(id, Waiter { recheck_at, ..waiter });
        self.waiters.queue.keep(waiter.live_until);
        let ahead = self.waiters.queue.ahead(id);
        // The head may have been woken. If it does not ask in its time, the permits are for the waiters behind it.
        let head = self.waiters.queue.head().filter(|(head, _)| *head != id);
        let time_left = head.map_or(Duration::MAX, |(_, head)| head.live_until.since(now));
        let time_left = time_left.min(self.time_left(now)).min(context.quiet.unwrap_or(Duration::MAX));
        Reply::Queued { ahead, recheck_after: wait_queue::recheck(waiter.wait, time_left, ahead) }
    }

    /// Announces an earlier time to ask again to the first waiter, if a hold now ends before the announced one.
    fn remind(&mut self, context: &mut Context<'_>) {
        let Some((id, &waiter)) = self.waiters.queue.head() else { return };
        let Some(end) = self.holders.next_end().filter(|end| *end < waiter.recheck_at) else { return };
        if waiter.wait.live.is_some() {
            self.waiters.queue.join(id, Waiter { recheck_at: end, ..waiter });
            context.notify(id, Signal::Recheck { within: end.since(context.now) });
        }
    }

    /// Returns the time until the next hold expires.
    fn time_left(&self, now: Timestamp) -> Duration {
        self.holders.next_end().map_or(Duration::MAX, |end| end.since(now))
    }
}

#[cfg(test)]
mod tests;
