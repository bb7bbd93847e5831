//! The list of primitives, and what a store is asked and answers.
//!
//! A primitive is plain data and a pure function `step`: no I/O, no clock, no randomness. A store runs one step
//! atomically; everything else (waiting, renewing, releasing) is written once, above the stores.

pub mod barrier;
#[cfg(test)]
mod bench;
pub mod counter;
mod crowd;
pub mod event;
mod holding;
pub mod inspection;
pub mod latch;
pub mod lock;
mod once;
mod queue;
pub mod rate_limiter;
mod remembered;
pub mod rwlock;
pub mod semaphore;
#[cfg(test)]
mod together_tests;
mod tombstones;
pub mod watchdog;
pub(crate) mod watchers;

use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    id::Id,
    key::Key,
};
pub use holding::{HoldKind, HoldRequest};
use inspection::Inspection;
pub use once::IdempotencyKey;
use std::{sync::Arc, time::Duration};

/// How long a hold lasts that was handed to a waiter of another process, until the waiter confirms it.
pub const GRANT_WINDOW: Duration = Duration::from_secs(2);

/// How long a tombstone refuses a late attempt, and an answer is remembered that may get lost.
pub const TOMBSTONE: Duration = Duration::from_secs(60);

/// How long a sent event, an expired watchdog, a latch and a counter are remembered that nobody changes.
pub const KEEP: Duration = Duration::from_secs(24 * 3600);

/// How a caller waits when it cannot be served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Wait {
    /// The place in the queue is lost when nothing was heard of the waiter for this long. `None`: the waiter lives
    /// in the store's own process and cannot go away unnoticed.
    pub live: Option<Duration>,
    /// Whether the waiter keeps its turn (`true`) or is merely woken when something is free.
    pub fair: bool,
}

impl Wait {
    /// Whether the answer to who waits so cannot get lost: nobody asks for it again.
    pub(crate) fn is_answered_once(wait: Option<Self>) -> bool {
        wait.is_some_and(|wait| wait.live.is_none())
    }

    /// When a waiter that asked at `now` and is not heard of again is taken to be gone.
    pub(crate) fn live_until(self, now: Timestamp) -> Timestamp {
        self.live.map_or(Timestamp::NEVER, |live| now + live)
    }
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Reply {
    /// It is yours.
    Granted {
        /// Rises with every grant of the key.
        fence: u64,
    },
    /// You are in the queue and will be pushed a [`Signal`].
    Queued {
        /// At most this many are before you.
        ahead: u64,
        /// Ask again after this long: messages may get lost. `None`: they do not.
        recheck_after: Option<Duration>,
    },
    /// Not now, and you are not in the queue.
    Busy {
        /// When the present lease runs out.
        retry_after: Duration,
    },
    /// The hold is over.
    Released,
    /// There was no such hold.
    NotHeld,
    /// The hold lasts on.
    Renewed {
        /// That of its grant. A waiter that was told of another one has been granted it anew since.
        fence: u64,
    },
    /// The hold is gone: it cannot be renewed.
    Lost,
    /// The attempt was cancelled.
    Cancelled,
    /// The state at the key belongs to another kind of primitive.
    WrongKind,
    /// Your tokens are taken: go ahead after `wait`.
    Admitted {
        /// How long to sleep first.
        wait: Duration,
        /// How many tokens are left for others then, as far as is known now.
        remaining: u64,
        /// How long after that all of them are free again.
        reset_after: Duration,
    },
    /// No tokens for you, and none were taken.
    Limited {
        /// When they could be had; `None`: not before the settings change.
        retry_after: Option<Duration>,
        /// How many tokens are left now.
        remaining: u64,
        /// When all of them are free again.
        reset_after: Duration,
        /// How many callers are in line: one that gives up brings `retry_after` forward.
        waiting: u64,
    },
    /// The event was sent, with this message.
    Message(Arc<str>),
    /// The watchdog has expired.
    Expired,
    /// It is so.
    Done,
    /// The state does not allow it: an event sent twice, a counter at its end.
    Conflict,
    /// The value after the request.
    Value(i64),
    /// How it looks.
    Inspected(Box<Inspection>),
    /// Nothing is known under this key.
    Unknown,
    /// What was known under this key is forgotten.
    Deleted,
}

impl Reply {
    /// Returns the error for a reply that the caller did not expect.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::WrongKind => {
                Error::new(ErrorKind::Conflict, "the key is in use by another kind of primitive")
            }
            reply => Error::new(ErrorKind::Conflict, format!("unexpected reply of the store: {reply:?}")),
        }
    }
}

/// What must reach somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The key it is about.
    pub key: Key,
    /// Whom it is for.
    pub id: Id,
    /// What happened.
    pub signal: Signal,
}

/// What is pushed. A hint only: whoever misses it finds the truth by asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// It is yours; confirm by renewing.
    Granted {
        /// Rises with every grant of the key.
        fence: u64,
    },
    /// It is yours until then, on the clock of the waiter's own process: nothing to confirm.
    HandedOff {
        /// Rises with every grant of the key.
        fence: u64,
        /// When the lease is over.
        until: Timestamp,
    },
    /// Ask again.
    Wake,
    /// Ask again when so much time has passed, if nothing else is heard until then: something may end earlier than was
    /// said before.
    Recheck {
        /// From the moment it is heard.
        within: Duration,
    },
    /// The name was deleted: wait no longer.
    Deleted,
}

/// What a step may look at and write to.
#[derive(Debug)]
pub struct Context<'a> {
    /// The key the state belongs to.
    pub key: &'a Key,
    /// The store's time, read once per step.
    pub now: Timestamp,
    /// What has to be sent to others after the step.
    pub notifications: &'a mut Vec<Notification>,
}

impl Context<'_> {
    fn notify(&mut self, id: Id, signal: Signal) {
        self.notifications.push(Notification { key: self.key.clone(), id, signal });
    }
}

/// The state of one key: what a store that runs the steps itself keeps.
pub trait State: Default {
    /// What can be asked of it.
    type Request;

    /// Carries out one request. Pure: equal states, requests and times give equal replies and notifications.
    fn step(&mut self, request: &Self::Request, context: &mut Context<'_>) -> Reply;

    /// Lets due times take effect without a request.
    fn tick(&mut self, context: &mut Context<'_>);

    /// When the next due time comes, if there is one.
    fn next_tick(&self) -> Option<Timestamp>;

    /// Whether somebody waits who does not know his time, so that due times must be kept to the point.
    fn has_waiters(&self) -> bool {
        false
    }

    /// How many hold something or wait.
    fn users(&self) -> usize;

    /// Whether nothing is left that has to be remembered: no user, no tombstone.
    fn is_idle(&self) -> bool;

    /// The highest fence given out: a key that is used again starts above it.
    fn last_fence(&self) -> u64 {
        0
    }

    /// Makes the next fence higher than `fence`.
    fn raise_fence(&mut self, _fence: u64) {}

    /// How it looks at `now`.
    fn inspect(&self, now: Timestamp) -> Inspection;

    /// Forgets everything but the last fence, and tells those who wait. Those for whom it has come, and who have been
    /// told to ask, wait no longer: they are answered as before.
    fn delete(&mut self, context: &mut Context<'_>);
}

macro_rules! primitives {
    ($($(#[$doc:meta])* $name:ident($module:ident, $state:ty)),+ $(,)?) => {
        /// A request to any primitive: plain data, so that a store may run it where it likes.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum Request {
            $($(#[$doc])* $name($module::Request),)+
            /// How does it look? Whatever it is.
            Inspect,
            /// Forget it, whatever it is; those who wait are told. Where answers may get lost, the store goes on refusing
            /// late copies, this request's too.
            Delete(IdempotencyKey),
        }

        /// The state of one key, of whichever primitive.
        #[derive(Debug)]
        pub(crate) enum AnyState {
            $($name($state)),+
        }

        impl AnyState {
            /// What a request creates; those about any kind create nothing.
            pub(crate) fn for_request(request: &Request) -> Option<Self> {
                match request {
                    $(Request::$name(_) => Some(Self::$name(Default::default())),)+
                    Request::Inspect | Request::Delete(_) => None,
                }
            }

            pub(crate) fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
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

            pub(crate) fn tick(&mut self, context: &mut Context<'_>) {
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

            pub(crate) fn is_idle(&self) -> bool {
                match self { $(Self::$name(state) => state.is_idle()),+ }
            }

            pub(crate) fn last_fence(&self) -> u64 {
                match self { $(Self::$name(state) => state.last_fence()),+ }
            }

            pub(crate) fn raise_fence(&mut self, fence: u64) {
                match self { $(Self::$name(state) => state.raise_fence(fence)),+ }
            }
        }
    };
}

/// A large state is kept behind a pointer, so that a key of a small one stays small.
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

primitives! {
    /// An exclusive lock.
    Lock(lock, lock::State),
    /// A semaphore, or a read/write lock.
    Semaphore(semaphore, Box<semaphore::State>),
    /// A rate limiter.
    RateLimiter(rate_limiter, Box<rate_limiter::State>),
    /// An event.
    Event(event, Box<event::State>),
    /// A watchdog.
    Watchdog(watchdog, Box<watchdog::State>),
    /// A barrier.
    Barrier(barrier, Box<barrier::State>),
    /// A latch.
    Latch(latch, Box<latch::State>),
    /// A counter.
    Counter(counter, Box<counter::State>),
}

/// When a waiter of another process asks again: well within its life, and soon after the holder's lease could be
/// over, those behind it a little later so that the first in line comes first.
pub(crate) fn recheck(wait: Wait, holder_time_left: Duration, ahead: u64) -> Option<Duration> {
    const STAGGER: Duration = Duration::from_millis(3);
    let turn = STAGGER.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
    wait.live.map(|live| (live / 3).min(holder_time_left.saturating_add(Duration::from_millis(1) + turn)))
}
