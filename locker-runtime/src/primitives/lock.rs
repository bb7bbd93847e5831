//! The exclusive lock: one holder, a first-in-first-out queue, direct hand-off.

use super::{
    inspection::{Held, Inspection},
    parts::{
        hold_request::HoldRequest,
        wait_queue::{self, WaitQueue, Waiter},
    },
    protocol::{GRANT_WINDOW, Reply, Signal, Wait},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id};
use std::time::Duration;

/// A request to a lock.
pub type Request = HoldRequest<()>;

/// The state of one lock.
///
/// Laws:
/// - at most one unexpired holder;
/// - fences rise;
/// - waiters are served in the order they joined, skipping those that disappeared;
/// - every request may be repeated with the same id.
#[derive(Clone, Debug, Default)]
pub struct State {
    holder: Option<Holder>,
    last_fence: u64,
    waiters: Option<Box<WaitQueue<()>>>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    id: Id,
    until: Timestamp,
    fence: u64,
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.forget(context.now);
        match *request {
            HoldRequest::Acquire { id, lease, wait, ask: () } => self.acquire(id, lease, wait, context),
            HoldRequest::Renew { id, lease, .. } => self.renew(id, lease, context),
            HoldRequest::Release { id, tombstone, .. } => self.release(id, tombstone, context),
            HoldRequest::Cancel { id, tombstone } => self.cancel(id, tombstone, context),
            HoldRequest::Evict { of, up_to } => self.evict(of, up_to, context),
        }
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context.now);
        self.hand_over(context);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let waiters = self.waiters.as_deref();
        let held = self.holder.map(|holder| holder.until);
        let free = held.or_else(|| waiters.and_then(WaitQueue::head_ends));
        free.into_iter().chain(waiters.and_then(|waiters| waiters.tombstones.next_end())).min()
    }

    fn has_waiters(&self) -> bool {
        self.waiters.as_ref().is_some_and(|waiters| !waiters.queue.is_empty())
    }

    fn users(&self) -> usize {
        usize::from(self.holder.is_some()) + self.waiting()
    }

    fn is_idle(&self) -> bool {
        self.holder.is_none() && self.waiters.as_ref().is_none_or(|waiters| waiters.is_empty())
    }

    fn last_fence(&self) -> u64 {
        self.last_fence
    }

    fn raise_fence(&mut self, fence: u64) {
        self.last_fence = self.last_fence.max(fence);
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let held = |holder: Holder| Held {
            age: None,
            time_left: Some(holder.until.since(now)),
            fence: holder.fence,
            permits: 1,
        };
        let holders = self.holder.filter(|holder| holder.until > now).map(held).into_iter().collect();
        Inspection { size: Some(1), holders, waiting: self.waiting() as u64, ..Inspection::default() }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        self.holder = None;
        if let Some(waiters) = self.waiters.take() {
            waiters.queue.ids().for_each(|id| context.notify(id, Signal::Deleted));
        }
    }
}

impl State {
    /// Returns the holder, its fence, and the end of its lease.
    #[must_use]
    pub fn holder(&self) -> Option<(Id, u64, Timestamp)> {
        self.holder.map(|holder| (holder.id, holder.fence, holder.until))
    }

    /// Returns the number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.as_ref().map_or(0, |waiters| waiters.queue.len())
    }

    fn acquire(&mut self, id: Id, lease: Duration, wait: Option<Wait>, context: &mut Context<'_>) -> Reply {
        if let Some(reply) = self.granted_to(id) {
            return reply;
        }
        if self.waiters.as_ref().is_some_and(|waiters| waiters.tombstones.has(id)) {
            return Reply::Cancelled;
        }
        if !self.may_overtake(wait) {
            self.hand_over(context);
            if let Some(reply) = self.granted_to(id) {
                return reply;
            }
        }
        if self.holder.is_none() && (self.may_overtake(wait) || self.is_next(id)) {
            self.leave(id);
            return Reply::Granted { fence: self.grant(id, lease, context.now) };
        }
        let Some(wait) = wait else {
            self.leave(id);
            return Reply::Busy { retry_after: self.time_left(context.now) };
        };
        self.enqueue(id, Waiter::new(lease, wait, (), context.now), context.now)
    }

    fn renew(&mut self, id: Id, lease: Duration, context: &mut Context<'_>) -> Reply {
        match &mut self.holder {
            Some(holder) if holder.id == id => {
                holder.until = holder.until.max(context.now + lease);
                Reply::Renewed { fence: holder.fence }
            }
            _ => {
                // A waiter that renews an old grant gets no new one here, since its fence would be wrong.
                if !self.waiters.as_ref().is_some_and(|waiters| waiters.queue.contains(id)) {
                    self.hand_over(context);
                }
                Reply::Lost
            }
        }
    }

    fn release(&mut self, id: Id, tombstone: bool, context: &mut Context<'_>) -> Reply {
        if tombstone {
            self.waiters().tombstones.add(id, context.now);
        }
        if self.granted_to(id).is_none() {
            return Reply::NotHeld;
        }
        self.holder = None;
        self.hand_over(context);
        Reply::Released
    }

    fn cancel(&mut self, id: Id, tombstone: bool, context: &mut Context<'_>) -> Reply {
        if tombstone {
            self.waiters().tombstones.add(id, context.now);
        }
        self.leave(id);
        if self.granted_to(id).is_some() {
            self.holder = None;
        }
        self.hand_over(context);
        Reply::Cancelled
    }

    fn evict(&mut self, of: Option<Id>, up_to: u64, context: &mut Context<'_>) -> Reply {
        let is_meant =
            |holder: Holder| holder.fence <= up_to && of.is_none_or(|attempt| attempt == holder.id);
        if !self.holder.is_some_and(is_meant) {
            return Reply::NotHeld;
        }
        self.holder = None;
        self.hand_over(context);
        Reply::Released
    }

    fn forget(&mut self, now: Timestamp) {
        if self.holder.is_some_and(|holder| holder.until <= now) {
            self.holder = None;
        }
        if let Some(waiters) = &mut self.waiters {
            waiters.tombstones.forget_until(now);
            waiters.queue.forget_until(now);
        }
    }

    fn granted_to(&self, id: Id) -> Option<Reply> {
        self.holder.filter(|holder| holder.id == id).map(|holder| Reply::Granted { fence: holder.fence })
    }

    fn grant(&mut self, id: Id, lease: Duration, now: Timestamp) -> u64 {
        let fence = (self.last_fence + 1).max(now.as_micros());
        self.last_fence = fence;
        self.holder = Some(Holder { id, until: now + lease, fence });
        fence
    }

    fn may_overtake(&self, wait: Option<Wait>) -> bool {
        match &self.waiters {
            Some(waiters) => waiters.may_be_overtaken(wait),
            None => wait.is_some_and(|wait| !wait.fair),
        }
    }

    /// Returns whether no other waiter is ahead of `id`.
    fn is_next(&self, id: Id) -> bool {
        self.waiters.as_ref().and_then(|waiters| waiters.queue.head()).is_none_or(|(head, _)| head == id)
    }

    /// Grants a free lock to the first waiter that is alive, or wakes it if it may be overtaken.
    fn hand_over(&mut self, context: &mut Context<'_>) {
        while self.holder.is_none() {
            let Some(waiters) = &mut self.waiters else { return };
            let Some((id, &waiter)) = waiters.queue.head() else { return };
            if waiter.live_until <= context.now {
                waiters.queue.leave(id);
            } else if waiter.wait.fair {
                waiters.queue.leave(id);
                let fence = self.grant(id, waiter.grant(), context.now);
                context.notify(id, waiter.signal(fence, context.now));
            } else {
                waiters.queue.join(id, waiter.woken(context.now));
                return context.notify(id, Signal::Wake);
            }
        }
    }

    fn enqueue(&mut self, id: Id, waiter: Waiter<()>, now: Timestamp) -> Reply {
        // A free lock is reserved for the head of the queue, which was woken.
        let time_left = if self.holder.is_some() { self.time_left(now) } else { GRANT_WINDOW };
        let queue = &mut self.waiters().queue;
        queue.join(id, waiter);
        queue.keep(waiter.live_until);
        let ahead = queue.ahead(id);
        Reply::Queued { ahead, recheck_after: wait_queue::recheck(waiter.wait, time_left, ahead) }
    }

    fn leave(&mut self, id: Id) {
        if let Some(waiters) = &mut self.waiters {
            waiters.queue.leave(id);
        }
    }

    fn time_left(&self, now: Timestamp) -> Duration {
        self.holder.map_or(Duration::ZERO, |holder| holder.until.since(now))
    }

    fn waiters(&mut self) -> &mut WaitQueue<()> {
        self.waiters.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests;
