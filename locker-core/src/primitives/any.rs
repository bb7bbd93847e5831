//! The list of primitives: the requests to any of them, and the state of any of them.

use super::{
    barrier, counter, event, latch, lock,
    parts::{hold_request::HoldRequest, idempotency::IdempotencyKey},
    protocol::Reply,
    rate_limiter, record, semaphore,
    state::{Context, State},
    watchdog,
};
use crate::clock::Timestamp;
#[cfg(feature = "_cas")]
use crate::id::Id;

macro_rules! primitives {
    ($($(#[$doc:meta])* $name:ident($module:ident, $state:ty)),+ $(,)?) => {
        /// A request to any primitive: plain data, which a store may carry out anywhere.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum Request {
            $($(#[$doc])* $name($module::Request),)+
            /// Returns the state of the key, whatever its kind.
            Inspect,
            /// Deletes the state of the key, whatever its kind, and notifies the waiters. If replies may be lost, the
            /// store continues to reject late copies, also of this request.
            Delete(IdempotencyKey),
        }

        /// The state of one key, of any primitive. Stores keep it in this form: append only.
        #[derive(Clone, Debug)]
        #[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
        pub enum AnyState {
            $(
                #[doc = concat!("Of `", stringify!($module), "`.")]
                $name($state)
            ),+
        }

        impl AnyState {
            /// Returns the state that a request creates; those about any kind create none.
            pub fn for_request(request: &Request) -> Option<Self> {
                match request {
                    $(Request::$name(_) => Some(Self::$name(Default::default())),)+
                    Request::Inspect | Request::Delete(_) => None,
                }
            }

            /// Carries out a request on the state.
            pub fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
                match (self, request) {
                    $((Self::$name(state), Request::$name(request)) => state.step(request, context),)+
                    $((Self::$name(state), Request::Inspect) => {
                        Reply::Inspected(Box::new(state.inspect(context.now)))
                    })+
                    $((Self::$name(state), Request::Delete(_)) => {
                        state.delete(context);
                        Reply::Deleted
                    })+
                    _ => Reply::WrongKind,
                }
            }

            /// Ends holds and waits whose time is over, and serves the next waiters.
            pub fn tick(&mut self, context: &mut Context<'_>) {
                match self { $(Self::$name(state) => state.tick(context)),+ }
            }

            pub(crate) fn next_tick(&self) -> Option<Timestamp> {
                match self { $(Self::$name(state) => state.next_tick()),+ }
            }

            pub(crate) fn has_waiters(&self) -> bool {
                match self { $(Self::$name(state) => state.has_waiters()),+ }
            }

            pub(crate) fn users(&self) -> usize {
                match self { $(Self::$name(state) => state.users()),+ }
            }

            /// Returns whether the state is as good as none.
            pub fn is_idle(&self) -> bool {
                match self { $(Self::$name(state) => state.is_idle()),+ }
            }

            /// Returns the fence of the latest grant.
            pub fn last_fence(&self) -> u64 {
                match self { $(Self::$name(state) => state.last_fence()),+ }
            }

            /// Makes the next fence higher than `fence`.
            pub fn raise_fence(&mut self, fence: u64) {
                match self { $(Self::$name(state) => state.raise_fence(fence)),+ }
            }
        }

        #[cfg(feature = "_cas")]
        impl AnyState {
            /// Returns whether somebody holds, waits or counts.
            pub fn is_in_use(&self) -> bool {
                match self { $(Self::$name(state) => state.is_in_use()),+ }
            }

            /// Returns when the state is idle without another request.
            pub fn lasts_until(&self) -> Timestamp {
                match self { $(Self::$name(state) => state.lasts_until()),+ }
            }

            /// Returns whether the hold `name` lasts at `now`.
            pub fn is_held(&self, name: Id, now: Timestamp) -> bool {
                match self { $(Self::$name(state) => state.is_held(name, now)),+ }
            }

            /// Returns whether the request would be granted at once.
            pub fn is_free_for(&self, request: &Request) -> bool {
                match (self, request) {
                    $((Self::$name(state), Request::$name(request)) => state.is_free_for(request),)+
                    _ => false,
                }
            }

            /// Returns until when the waiter `id` keeps its place, if it has one.
            pub fn place(&self, id: Id) -> Option<Timestamp> {
                match self { $(Self::$name(state) => state.place(id)),+ }
            }

            /// Returns the highest fence of a holder, 0 without one.
            pub fn held_fence(&self) -> u64 {
                match self { $(Self::$name(state) => state.held_fence()),+ }
            }

            /// Returns when the last hold ends without a renewal.
            pub fn held_until(&self) -> Timestamp {
                match self { $(Self::$name(state) => state.held_until()),+ }
            }

            /// Returns the fence and the end of the only possible hold, if the state has one.
            pub fn exclusive_holder(&self) -> Option<(u64, Timestamp)> {
                match self { $(Self::$name(state) => state.exclusive_holder()),+ }
            }
        }
    };
}

primitives! {
    /// To an exclusive lock.
    Lock(lock, lock::State),
    /// To a semaphore or a read/write lock.
    Semaphore(semaphore, Box<semaphore::State>),
    /// To a rate limiter.
    RateLimiter(rate_limiter, Box<rate_limiter::State>),
    /// To an event.
    Event(event, Box<event::State>),
    /// To a watchdog.
    Watchdog(watchdog, Box<watchdog::State>),
    /// To a barrier.
    Barrier(barrier, Box<barrier::State>),
    /// To a latch.
    Latch(latch, Box<latch::State>),
    /// To a counter.
    Counter(counter, Box<counter::State>),
    /// To a record.
    Record(record, Box<record::State>),
}

#[cfg(feature = "_cas")]
impl AnyState {
    /// Returns whether the time counts in which no process is connected: for what nobody holds or watches, such as the
    /// refill of a limit.
    #[must_use]
    pub fn counts_gaps(&self) -> bool {
        !matches!(self, Self::Lock(_) | Self::Semaphore(_) | Self::Watchdog(_) | Self::Record(_))
    }
}

impl Request {
    /// Marks a request with an idempotency key as a retry: an earlier copy may still arrive.
    pub fn set_retried(&mut self) {
        let once = match self {
            Self::Lock(HoldRequest::Renew { once, .. } | HoldRequest::Release { once, .. })
            | Self::Semaphore(HoldRequest::Renew { once, .. } | HoldRequest::Release { once, .. })
            | Self::Record(record::Request::Hold(
                HoldRequest::Renew { once, .. } | HoldRequest::Release { once, .. },
            )) => once.as_mut(),
            Self::Event(event::Request::Send { once, .. } | event::Request::Reset { once })
            | Self::Watchdog(watchdog::Request::Kick { once, .. })
            | Self::Counter(counter::Request::Set { once, .. })
            | Self::Delete(once) => Some(once),
            _ => None,
        };
        if let Some(once) = once {
            once.retried = true;
        }
    }

    /// Returns [`AnyState::counts_gaps`] of the state that this request creates, if it creates one.
    #[cfg(feature = "_cas")]
    #[must_use]
    pub fn counts_gaps(&self) -> Option<bool> {
        AnyState::for_request(self).map(|state| state.counts_gaps())
    }

    /// Returns the name of the hold that is asked for, if a client has chosen it.
    #[cfg(feature = "_cas")]
    #[must_use]
    pub fn hold_name(&self) -> Option<Id> {
        match *self {
            Self::Lock(HoldRequest::Acquire { ask, .. }) => ask,
            Self::Semaphore(HoldRequest::Acquire { id, ask, .. }) => Some(ask.key).filter(|name| *name != id),
            _ => None,
        }
    }

    /// Returns the waiter that this request gives a place in a queue, or whose place it keeps.
    #[cfg(feature = "_cas")]
    #[must_use]
    pub fn waiter(&self) -> Option<Id> {
        match *self {
            Self::Lock(HoldRequest::Acquire { id, wait: Some(_), .. })
            | Self::Semaphore(HoldRequest::Acquire { id, wait: Some(_), .. })
            | Self::Record(record::Request::Hold(HoldRequest::Acquire { id, wait: Some(_), .. }))
            | Self::RateLimiter(rate_limiter::Request::Take { id, wait: Some(_), .. })
            | Self::Event(event::Request::Wait { id, wait: Some(_) })
            | Self::Watchdog(watchdog::Request::Wait { id, wait: Some(_) })
            | Self::Barrier(barrier::Request::Arrive { id, wait: Some(_), .. })
            | Self::Latch(latch::Request::Wait { id, wait: Some(_), .. }) => Some(id),
            _ => None,
        }
    }
}
