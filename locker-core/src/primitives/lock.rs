//! The exclusive lock: one holder, a first-in-first-out queue, direct hand-off.

use super::{
    inspection::{Held, Inspection},
    parts::{
        hold_request::HoldRequest,
        idempotency::IdempotencyKey,
        wait_queue::{self, WaitQueue, Waiter},
    },
    protocol::{GRANT_WINDOW, Reply, Signal, Wait},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id};
use std::time::Duration;

/// A request to a lock. `ask` is the name of the hold if a client has chosen one; otherwise the attempt is its name.
/// `Renew`, `Release` and `Evict` name the hold, `Cancel` the attempt.
pub type Request = HoldRequest<Option<Id>>;

/// The state of one lock.
///
/// Laws:
/// - at most one unexpired holder;
/// - fences rise;
/// - waiters are served in the order they joined, skipping those that disappeared;
/// - every request may be repeated with the same id;
/// - no copy of a renewal or release with an idempotency key has an effect after a retry;
/// - attempts with the same name share one hold, and a cancel ends it only if no other attempt has got it.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    holder: Option<Holder>,
    last_fence: u64,
    #[cfg_attr(feature = "_cas", serde(serialize_with = "wait_queue::store_used"))]
    waiters: Option<Box<WaitQueue<Option<Id>>>>,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
struct Holder {
    id: Id,
    /// The attempt that was granted it under a name, as long as no other attempt has got the same hold.
    attempt: Option<Id>,
    until: Timestamp,
    fence: u64,
    /// Granted to a waiter of another process, which has not confirmed it yet.
    is_unconfirmed: bool,
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        if let (HoldRequest::Acquire { id, .. }, Some(waiters)) = (request, &mut self.waiters) {
            waiters.hear(*id, context);
        }
        self.forget(context);
        match *request {
            HoldRequest::Acquire { id, lease, wait, ask } => self.acquire(id, lease, wait, ask, context),
            HoldRequest::Renew { id, lease, once } => self.renew(id, lease, once, context),
            HoldRequest::Release { id, tombstone, once } => self.release(id, tombstone, once, context),
            HoldRequest::Cancel { id, tombstone } => self.cancel(id, tombstone, context),
            HoldRequest::Evict { of, up_to } => self.evict(of, up_to, context),
        }
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context);
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

    fn is_in_use(&self) -> bool {
        self.holder.is_some() || self.has_waiters()
    }

    fn lasts_until(&self) -> Timestamp {
        let held = self.held_until();
        self.waiters.as_ref().map_or(held, |waiters| held.max(waiters.lasts_until()))
    }

    fn is_held(&self, name: Id, now: Timestamp) -> bool {
        self.holder.is_some_and(|holder| holder.id == name && holder.until > now)
    }

    fn is_free_for(&self, _request: &Request) -> bool {
        self.holder.is_none()
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        self.waiters.as_ref().and_then(|waiters| waiters.place(id))
    }

    fn exclusive_holder(&self) -> Option<(u64, Timestamp)> {
        self.holder.map(|holder| (holder.fence, holder.until))
    }

    fn held_until(&self) -> Timestamp {
        self.holder.map_or(Timestamp::default(), |holder| holder.until)
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
            note: None,
            tag: Some(holder.id.tag()),
        };
        let holders = self.holder.filter(|holder| holder.until > now).map(held).into_iter().collect();
        let (waiters, waiting) = self.waiters.as_ref().map(|all| all.inspect(now)).unwrap_or_default();
        Inspection { size: Some(1), holders, waiting, waiters, ..Inspection::default() }
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

    fn acquire(
        &mut self,
        id: Id,
        lease: Duration,
        wait: Option<Wait>,
        name: Option<Id>,
        context: &mut Context<'_>,
    ) -> Reply {
        let is_refused = self.waiters.as_ref().is_some_and(|waiters| waiters.tombstones.has(id));
        if let Some(reply) = self.granted_to(name.unwrap_or(id)) {
            if name.is_some() && !is_refused {
                self.share(id);
            }
            return reply;
        }
        if is_refused {
            return Reply::Cancelled;
        }
        if !self.may_overtake(wait) {
            self.hand_over(context);
            if let Some(reply) = self.granted_to(id) {
                return reply;
            }
        }
        let is_free = self.holder.is_none() && context.quiet.is_none();
        if is_free && (self.may_overtake(wait) || self.is_next(id)) {
            self.leave(id);
            let fence = self.grant(id, name, lease, false, context);
            self.wake_namesakes(name, context);
            return Reply::Granted { fence };
        }
        let Some(wait) = wait else {
            self.leave(id);
            return Reply::Busy { retry_after: self.time_left(context.now) };
        };
        self.enqueue(id, Waiter::new(lease, wait, name, context.now), context)
    }

    /// Records that an attempt has got the hold of its name. If it was granted to another attempt, it belongs to
    /// neither from now on, so that neither ends it by giving up.
    fn share(&mut self, id: Id) {
        if let Some(holder) = &mut self.holder {
            holder.attempt.take_if(|attempt| *attempt != id);
        }
        self.leave(id);
    }

    /// Wakes the waiters of this process whose name holds from now on. Waiters of other processes ask again in time.
    fn wake_namesakes(&mut self, name: Option<Id>, context: &mut Context<'_>) {
        let Some(waiters) = self.waiters.as_mut().filter(|_| name.is_some()) else { return };
        for (id, waiter) in waiters.queue.iter_mut() {
            if waiter.ask == name && waiter.is_here(id, context) {
                context.notify(id, Signal::Wake);
            }
        }
    }

    fn renew(
        &mut self,
        id: Id,
        lease: Duration,
        once: Option<IdempotencyKey>,
        context: &mut Context<'_>,
    ) -> Reply {
        let is_late = self.is_late(once, context.now);
        match &mut self.holder {
            Some(holder) if holder.id == id => {
                if !is_late {
                    holder.until = holder.until.max(context.until(lease));
                    holder.is_unconfirmed = false;
                }
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

    fn release(
        &mut self,
        id: Id,
        tombstone: bool,
        once: Option<IdempotencyKey>,
        context: &mut Context<'_>,
    ) -> Reply {
        if tombstone {
            self.waiters().tombstones.add(id, context.now);
        }
        if self.is_late(once, context.now) || self.granted_to(id).is_none() {
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
        if self.holder.is_some_and(|holder| holder.id == id || holder.attempt == Some(id)) {
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

    fn forget(&mut self, context: &Context<'_>) {
        let over = self.holder.take_if(|holder| holder.until <= context.now);
        let Some(waiters) = &mut self.waiters else { return };
        waiters.forget_until(context.now);
        if let Some(holder) = over.filter(|holder| holder.is_unconfirmed) {
            waiters.silence(holder.id, context);
        }
    }

    fn is_late(&mut self, once: Option<IdempotencyKey>, now: Timestamp) -> bool {
        once.is_some() && self.waiters().tombstones.is_late(once, now)
    }

    fn granted_to(&self, id: Id) -> Option<Reply> {
        self.holder.filter(|holder| holder.id == id).map(|holder| Reply::Granted { fence: holder.fence })
    }

    fn grant(
        &mut self,
        id: Id,
        name: Option<Id>,
        lease: Duration,
        is_unconfirmed: bool,
        context: &Context<'_>,
    ) -> u64 {
        let fence = context.fence(self.last_fence);
        self.last_fence = fence;
        let (attempt, id) = (name.map(|_| id), name.unwrap_or(id));
        self.holder = Some(Holder { id, attempt, until: context.until(lease), fence, is_unconfirmed });
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

    /// Grants a free lock to the first waiter that is alive. A waiter that may be overtaken is only woken, as is one
    /// with a name: its hold begins when it asks again. In a quiet time the waiter gets
    /// the rest of that time, after which it asks again.
    fn hand_over(&mut self, context: &mut Context<'_>) {
        while self.holder.is_none() {
            let Some(waiters) = &mut self.waiters else { return };
            waiters.pass_over(context);
            let Some((id, &waiter)) = waiters.queue.head() else { return };
            if let Some(within) = context.quiet {
                return context.notify(id, Signal::Recheck { within });
            } else if waiter.wait.fair && waiter.ask.is_none() {
                waiters.queue.leave(id);
                let is_unconfirmed = !waiter.is_here(id, context);
                let fence = self.grant(id, None, waiter.grant(id, context), is_unconfirmed, context);
                context.notify(id, waiter.signal(id, fence, context));
            } else {
                waiters.queue.join(id, waiter.woken(context));
                return context.notify(id, Signal::Wake);
            }
        }
    }

    fn enqueue(&mut self, id: Id, waiter: Waiter<Option<Id>>, context: &Context<'_>) -> Reply {
        let now = context.now;
        let queue = &mut self.waiters.get_or_insert_default().queue;
        // A free lock is reserved for the head of the queue, which was woken.
        let time_left = match (self.holder, queue.head()) {
            (Some(holder), _) => holder.until.since(now),
            (None, _) if context.quiet.is_some() => context.quiet.unwrap_or_default(),
            (None, Some((_, head))) => head.live_until.since(now).min(GRANT_WINDOW),
            (None, None) => GRANT_WINDOW,
        };
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

    fn waiters(&mut self) -> &mut WaitQueue<Option<Id>> {
        self.waiters.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests;
