//! The state of one key, and what a step may use.

use super::{
    inspection::Inspection,
    protocol::{Notification, Reply, Signal},
};
use crate::{clock::Timestamp, id::Id, key::Key};

/// The surroundings of a step.
#[derive(Debug)]
pub struct Context<'a> {
    /// The key that the state belongs to.
    pub key: &'a Key,
    /// The store's time, read once per step.
    pub now: Timestamp,
    /// The notifications to send after the step.
    pub notifications: &'a mut Vec<Notification>,
}

impl Context<'_> {
    pub(super) fn notify(&mut self, id: Id, signal: Signal) {
        self.notifications.push(Notification { key: self.key.clone(), id, signal });
    }
}

/// The state of one key, as a store keeps it that runs the steps itself.
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
