//! The list of primitives, and what a store is asked and answers.
//!
//! A primitive is plain data and a pure function `step`: no I/O, no clock, no randomness. A store runs one step
//! atomically; everything else (waiting, renewing, releasing) is written once, above the stores.

pub mod lock;
mod queue;
mod tombstones;

use crate::{clock::Timestamp, id::Id, key::Key};
use std::time::Duration;

/// How long a hold lasts that was handed to a waiter of another process, until the waiter confirms it.
pub const GRANT_WINDOW: Duration = Duration::from_secs(2);

/// How long a tombstone refuses a late attempt.
pub const TOMBSTONE: Duration = Duration::from_secs(60);

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

/// A request about something that is held: the same for every primitive with holders, `A` being what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Holding<A> {
    /// Hold it, or queue for it when `wait` is given. Asking again with the same id gives the same grant.
    Acquire {
        /// Names the attempt and, once granted, the hold.
        id: Id,
        /// How long the hold lasts without renewal.
        lease: Duration,
        /// How to wait; `None` answers `Busy` at once and leaves the queue.
        wait: Option<Wait>,
        /// What exactly is asked for.
        ask: A,
    },
    /// Let the hold last `lease` from now.
    Renew {
        /// The hold.
        id: Id,
        /// The new time to live.
        lease: Duration,
    },
    /// End the hold.
    Release {
        /// The hold.
        id: Id,
        /// Refuse this id from now on: an attempt with an unknown outcome may still arrive.
        tombstone: bool,
    },
    /// Leave the queue, and end the hold if there is one.
    Cancel {
        /// The attempt.
        id: Id,
        /// As for `Release`.
        tombstone: bool,
    },
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
        recheck_in: Option<Duration>,
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
    Renewed,
    /// The hold is gone: it cannot be renewed.
    Lost,
    /// The attempt was cancelled.
    Cancelled,
    /// The state at the key belongs to another kind of primitive.
    WrongKind,
}

/// What must reach somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The key it is about.
    pub key: Key,
    /// Whom it is for.
    pub id: Id,
    /// What happened.
    pub signal: Signal,
}

/// What is pushed. A hint only: whoever misses it finds the truth by asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It is yours; confirm by renewing.
    Granted {
        /// Rises with every grant of the key.
        fence: u64,
    },
    /// Ask again.
    Wake,
}

/// What a step may look at and write to.
#[derive(Debug)]
pub struct Context<'a> {
    /// The key the state belongs to.
    pub key: &'a Key,
    /// The store's time, read once per step.
    pub now: Timestamp,
    /// What has to be sent to others after the step.
    pub pushes: &'a mut Vec<Push>,
}

impl Context<'_> {
    fn push(&mut self, id: Id, signal: Signal) {
        self.pushes.push(Push { key: self.key.clone(), id, signal });
    }
}

/// The state of one key: what a store that runs the steps itself keeps.
pub trait State: Default {
    /// What can be asked of it.
    type Request;

    /// Carries out one request. Pure: equal states, requests and times give equal replies and pushes.
    fn step(&mut self, request: &Self::Request, context: &mut Context<'_>) -> Reply;

    /// Lets due times take effect without a request.
    fn tick(&mut self, context: &mut Context<'_>);

    /// When the next due time comes, if there is one.
    fn next_tick(&self) -> Option<Timestamp>;

    /// Whether somebody waits, so that due times must be kept to the point.
    fn has_waiters(&self) -> bool;

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
}

macro_rules! primitives {
    ($($(#[$doc:meta])* $name:ident($module:ident)),+ $(,)?) => {
        /// A request to any primitive: plain data, so that a store may run it where it likes.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum Request {
            $($(#[$doc])* $name($module::Request)),+
        }

        /// The state of one key, of whichever primitive.
        #[derive(Debug)]
        pub(crate) enum AnyState {
            $($name($module::State)),+
        }

        impl AnyState {
            pub(crate) fn for_request(request: &Request) -> Self {
                match request { $(Request::$name(_) => Self::$name(Default::default())),+ }
            }

            pub(crate) fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
                match (self, request) {
                    $((Self::$name(state), Request::$name(request)) => state.step(request, context),)+
                    #[allow(unreachable_patterns, reason = "reachable once there are two primitives")]
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

primitives! {
    /// An exclusive lock.
    Lock(lock),
}

/// What kind of hold a guard owns; it knows how to ask for one, keep it and end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An exclusive lock.
    Lock,
}

impl Kind {
    pub(crate) fn acquire(self, id: Id, lease: Duration, wait: Option<Wait>) -> Request {
        match self {
            Self::Lock => Request::Lock(Holding::Acquire { id, lease, wait, ask: () }),
        }
    }

    pub(crate) fn renew(self, id: Id, lease: Duration) -> Request {
        match self {
            Self::Lock => Request::Lock(Holding::Renew { id, lease }),
        }
    }

    pub(crate) fn release(self, id: Id, tombstone: bool) -> Request {
        match self {
            Self::Lock => Request::Lock(Holding::Release { id, tombstone }),
        }
    }

    pub(crate) fn cancel(self, id: Id, tombstone: bool) -> Request {
        match self {
            Self::Lock => Request::Lock(Holding::Cancel { id, tombstone }),
        }
    }
}

/// When a waiter of another process asks again: well within its life, and soon after the holder's lease could be
/// over, those behind it a little later so that the first in line comes first.
pub(crate) fn recheck(wait: Wait, holder_time_left: Duration, ahead: u64) -> Option<Duration> {
    const STAGGER: Duration = Duration::from_millis(3);
    let turn = STAGGER.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
    wait.live.map(|live| (live / 3).min(holder_time_left + Duration::from_millis(1) + turn))
}
