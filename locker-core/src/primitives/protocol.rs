//! The protocol between a store and its callers: how a caller waits, what a store replies, and its notifications.

use super::{inspection::Inspection, value::Value};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    id::Id,
    key::Key,
};
use std::{sync::Arc, time::Duration};

/// How long a hold lasts that was handed to a waiter of another process, until the waiter confirms it. The scripts in
/// `stores/redis/src/lua/` have the same value.
pub const GRANT_WINDOW: Duration = Duration::from_secs(2);

/// How long tombstones reject late copies of a cancelled attempt, and replies are cached for retries.
pub const TOMBSTONE: Duration = Duration::from_secs(60);

/// How long a sent event, an expired watchdog, a latch and a counter are kept after their last change.
pub const KEEP: Duration = Duration::from_secs(24 * 3600);

/// How a caller waits if it cannot be served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(feature = "serde", feature = "_cas"), derive(serde::Serialize, serde::Deserialize))]
pub struct Wait {
    /// How long the waiter keeps its place in the queue without asking again. `None` if it lives in the store's own
    /// process, where it cannot disappear unnoticed.
    pub live: Option<Duration>,
    /// Whether the waiter is served in the order of the queue (`true`), or only woken when something is free (`false`).
    pub fair: bool,
}

impl Wait {
    /// Returns whether the reply to this waiter cannot be lost, so that it is not asked for again.
    pub(crate) fn is_answered_once(wait: Option<Self>) -> bool {
        wait.is_some_and(|wait| wait.live.is_none())
    }

    /// Returns when a waiter that asked at `now` loses its place unless it asks again.
    pub(crate) fn live_until(self, now: Timestamp) -> Timestamp {
        self.live.map_or(Timestamp::NEVER, |live| now + live)
    }
}

/// The reply of a store to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Reply {
    /// The caller holds it.
    Granted {
        /// The fencing token, which rises with every grant of the key.
        fence: u64,
    },
    /// The caller is in the queue and will get a [`Signal`].
    Queued {
        /// The greatest possible number of waiters ahead.
        ahead: u64,
        /// How long to wait for a signal before asking again, since notifications may be lost. `None` if they cannot.
        recheck_after: Option<Duration>,
    },
    /// It is not free, and the caller is not in the queue.
    Busy {
        /// When the current lease expires.
        retry_after: Duration,
    },
    /// The hold was ended.
    Released,
    /// There was no such hold.
    NotHeld,
    /// The hold was extended.
    Renewed {
        /// The fence of the hold's grant. If it differs from the fence that the holder knows, the key was granted to
        /// it again since.
        fence: u64,
    },
    /// The hold has ended and cannot be renewed.
    Lost,
    /// The attempt was cancelled.
    Cancelled,
    /// Another kind of primitive uses the key.
    WrongKind,
    /// The caller got its tokens and may go ahead after `wait`.
    Admitted {
        /// How long to sleep first.
        wait: Duration,
        /// A forecast of the tokens left for other callers after `wait`.
        remaining: u64,
        /// How long after `wait` all tokens are free again.
        reset_after: Duration,
    },
    /// The caller got no tokens, and none were taken.
    Limited {
        /// When the tokens could be available. `None` if they cannot be before the settings change.
        retry_after: Option<Duration>,
        /// The number of tokens left now.
        remaining: u64,
        /// When all tokens are free again.
        reset_after: Duration,
        /// The number of callers with a reservation. A caller that gives up brings `retry_after` forward.
        waiting: u64,
    },
    /// The event was sent, with this message.
    Message(Arc<str>),
    /// The watchdog has expired.
    Expired,
    /// The request was carried out, or its condition is met.
    Done,
    /// The state does not allow the request: the event was sent already, or the counter would leave its range.
    Conflict,
    /// The value after the request.
    Value(i64),
    /// The state of the key.
    Inspected(Box<Inspection>),
    /// The key has no state.
    Unknown,
    /// The state of the key was deleted.
    Deleted,
    /// The caller runs.
    Begun {
        /// The fencing token, which rises with every run of the key.
        fence: u64,
        /// The beginning of the slot that the run belongs to, if there are slots.
        slot: Option<Timestamp>,
        /// The number of slots since the last success in which nothing has succeeded. 0 at first.
        missed: u64,
    },
    /// A run has succeeded, with this result.
    Finished {
        /// The result.
        value: Value,
    },
    /// The result was recorded, by this or an earlier copy of the request.
    Recorded,
    /// The run has another digest than the caller.
    Mismatch,
}

impl Reply {
    /// Returns the error for a reply that the caller did not expect.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            Self::WrongKind => {
                Error::new(ErrorKind::Conflict, "the key is in use by another kind of primitive")
            }
            reply => Error::new(ErrorKind::Conflict, format!("unexpected reply of the store: {reply:?}")),
        }
    }
}

/// A message to a waiter, caused by the request of another caller or by time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The key that the waiter waits at.
    pub key: Key,
    /// The waiter.
    pub id: Id,
    /// The event.
    pub signal: Signal,
}

/// The content of a notification. A hint only: a waiter that misses it learns the truth from its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The waiter holds the key for the grant window and confirms the hold by renewing it.
    Granted {
        /// The fencing token, which rises with every grant of the key.
        fence: u64,
    },
    /// The waiter holds the key, with nothing to confirm.
    HandedOff {
        /// The fencing token, which rises with every grant of the key.
        fence: u64,
        /// When the lease expires, on the clock of the waiter's own process.
        until: Timestamp,
    },
    /// Ask again now.
    Wake,
    /// Re-check after `within` unless another signal arrives first: a hold will expire earlier than announced.
    Recheck {
        /// The time from the arrival of the signal.
        within: Duration,
    },
    /// The state of the key was deleted: stop waiting.
    Deleted,
}
