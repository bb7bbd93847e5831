//! The state of one key, and what a step may use.

use super::{
    inspection::Inspection,
    protocol::{Notification, Reply, Signal},
};
use crate::{clock::Timestamp, id::Id, key::Key};
use std::time::Duration;

/// The surroundings of a step.
#[derive(Debug)]
pub struct Context<'a> {
    /// The key that the state belongs to.
    pub key: &'a Key,
    /// The store's time, read once per step. If it is not known exactly, a time that is not later.
    pub now: Timestamp,
    /// The time of day, for slots: `now`, unless the store's clock stands still while no process is connected.
    pub wall: Timestamp,
    /// How much later than `now` the store's time may be.
    pub spread: Duration,
    /// The lowest fence of a grant.
    pub floor: u64,
    /// The address of the process that runs the step, if the waiters of several processes meet: the ids of its waiters
    /// begin with it.
    pub inbox: Option<u32>,
    /// The address of the process whose waiter asks. Set by the step.
    pub(super) caller: Option<u32>,
    /// The addresses that no process listens to. Their waiters are passed over.
    pub gone: &'a [u32],
    /// How long nothing may be granted, because the store may have lost grants. Waiters keep their places.
    pub quiet: Option<Duration>,
    /// The notifications to send after the step.
    pub notifications: &'a mut Vec<Notification>,
}

impl<'a> Context<'a> {
    /// Creates the surroundings of a step at a store with an exact clock, in the process of all waiters.
    pub fn new(key: &'a Key, now: Timestamp, notifications: &'a mut Vec<Notification>) -> Self {
        Self {
            key,
            now,
            wall: now,
            spread: Duration::ZERO,
            floor: now.as_micros(),
            inbox: None,
            caller: None,
            gone: &[],
            quiet: None,
            notifications,
        }
    }

    /// Returns the end of what lasts for `lease` from now at least, whatever the exact time is.
    #[must_use]
    pub fn until(&self, lease: Duration) -> Timestamp {
        self.now + self.spread + lease
    }

    /// Returns the fence of the next grant at a key whose last fence is `last`.
    #[must_use]
    pub fn fence(&self, last: u64) -> u64 {
        last.saturating_add(1).max(self.floor)
    }

    pub(super) fn notify(&mut self, id: Id, signal: Signal) {
        self.notifications.push(Notification { key: self.key.clone(), id, signal });
    }
}

/// The state of one key, as a store keeps it that runs the steps itself.
///
/// The functions from [`is_in_use`](Self::is_in_use) to [`held_until`](Self::held_until) are for stores that compare
/// and set values.
pub trait State: Default {
    /// The requests that it serves.
    type Request;

    /// Carries out one request. Pure: equal states, requests and times give equal replies and notifications.
    fn step(&mut self, request: &Self::Request, context: &mut Context<'_>) -> Reply;

    /// Applies everything that is due, without a request.
    fn tick(&mut self, context: &mut Context<'_>);

    /// Returns the next due time, if there is one.
    fn next_tick(&self) -> Option<Timestamp>;

    /// Returns whether a waiter depends on the next tick, which must then come on time.
    fn has_waiters(&self) -> bool {
        false
    }

    /// Returns the number of holders and waiters.
    fn users(&self) -> usize;

    /// Returns whether nothing has to be kept: no user, no tombstone.
    fn is_idle(&self) -> bool;

    /// Returns whether there is more than what is kept for late copies of requests: tombstones and replies.
    fn is_in_use(&self) -> bool;

    /// Returns a time from which on the state is idle after a [`tick`](Self::tick), if no request comes before.
    /// [`Timestamp::NEVER`] if it may never be.
    fn lasts_until(&self) -> Timestamp;

    /// Returns whether there is a hold with this name at `now`.
    fn is_held(&self, _name: Id, _now: Timestamp) -> bool {
        false
    }

    /// Returns whether `request` could be granted if it were the first in the queue.
    fn is_free_for(&self, _request: &Self::Request) -> bool {
        false
    }

    /// Returns when a waiter loses its place unless it asks again. Returns `None` if it is not waiting.
    fn place(&self, _id: Id) -> Option<Timestamp> {
        None
    }

    /// Returns the fence of the only possible holder, and the end of its lease.
    fn exclusive_holder(&self) -> Option<(u64, Timestamp)> {
        None
    }

    /// Returns the highest fence of a holder, 0 without one.
    fn held_fence(&self) -> u64 {
        self.exclusive_holder().map_or(0, |(fence, _)| fence)
    }

    /// Returns a time from which on nothing is held unless it is renewed, [`Timestamp::NEVER`] if a hold has no end.
    fn held_until(&self) -> Timestamp {
        Timestamp::default()
    }

    /// Returns the highest fence so far. A key that is used again starts above it.
    fn last_fence(&self) -> u64 {
        0
    }

    /// Makes the next fence higher than `fence`.
    fn raise_fence(&mut self, _fence: u64) {}

    /// Returns the state as it is at `now`.
    fn inspect(&self, now: Timestamp) -> Inspection;

    /// Deletes everything but the last fence, and notifies the waiters. A waiter that was served already and was
    /// woken to ask again is no longer waiting: it gets the reply that is kept for it.
    fn delete(&mut self, context: &mut Context<'_>);
}

/// A large state is kept behind a pointer, so that the key of a small one stays small.
impl<S: State> State for Box<S> {
    type Request = S::Request;

    fn step(&mut self, request: &Self::Request, context: &mut Context<'_>) -> Reply {
        (**self).step(request, context)
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        (**self).tick(context);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        (**self).next_tick()
    }

    fn has_waiters(&self) -> bool {
        (**self).has_waiters()
    }

    fn users(&self) -> usize {
        (**self).users()
    }

    fn is_idle(&self) -> bool {
        (**self).is_idle()
    }

    fn is_in_use(&self) -> bool {
        (**self).is_in_use()
    }

    fn lasts_until(&self) -> Timestamp {
        (**self).lasts_until()
    }

    fn is_held(&self, name: Id, now: Timestamp) -> bool {
        (**self).is_held(name, now)
    }

    fn is_free_for(&self, request: &Self::Request) -> bool {
        (**self).is_free_for(request)
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        (**self).place(id)
    }

    fn exclusive_holder(&self) -> Option<(u64, Timestamp)> {
        (**self).exclusive_holder()
    }

    fn held_fence(&self) -> u64 {
        (**self).held_fence()
    }

    fn held_until(&self) -> Timestamp {
        (**self).held_until()
    }

    fn last_fence(&self) -> u64 {
        (**self).last_fence()
    }

    fn raise_fence(&mut self, fence: u64) {
        (**self).raise_fence(fence);
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        (**self).inspect(now)
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        (**self).delete(context);
    }
}
