//! One operation that may wait, as the waiting loop sees it.

use crate::locker::{Ahead, Call, Locker, Wait as ListedWait};
use locker_core::{
    backoff::Backoff,
    clock::Timestamp,
    id::Id,
    primitives::{GRANT_WINDOW, Reply, Request, Wait},
};
use std::{task::Context, time::Duration};

/// An operation that may wait: its requests, and how it waits.
pub(crate) trait WaitOp {
    fn id(&self) -> Id;

    /// The call that it is part of.
    fn call(&self) -> &Call<'_>;

    fn ask(&self, wait: Option<Wait>) -> Request;
    fn cancel(&self, tombstone: bool) -> Request;

    /// Returns the request that confirms a grant. Returns `None` if asking again confirms it.
    fn confirm(&self) -> Option<Request> {
        None
    }

    /// How long a grant lasts.
    fn lease(&self) -> Duration {
        GRANT_WINDOW
    }

    /// How long a grant lasts for its caller, who stops before its end.
    fn usable(&self) -> Duration {
        self.lease()
    }

    /// Whether the grant is renewed.
    fn renews(&self) -> bool {
        true
    }

    fn fair(&self) -> bool {
        true
    }

    /// The pauses after errors, up to the `retry_delay`.
    fn pauses(&self) -> Backoff {
        Backoff::default()
    }

    /// Whether it is normal that it waits for long. The beginning of an outage is logged then, and such waits are the
    /// last in lists that are too long.
    fn is_long(&self) -> bool {
        false
    }

    /// Whether to wait until the timeout for a reservation that is due later.
    fn waits_past_timeout(&self) -> bool {
        false
    }

    /// The longest time until a waiter asks again, if the store names a longer one.
    fn longest_recheck(&self, _: &Locker) -> Duration {
        Duration::MAX
    }

    /// Whether other callers may have counted a caller that timed out. Such a caller asks a last time.
    fn needs_final_check(&self) -> bool {
        false
    }

    /// Whether errors name the holders that stood in the way.
    fn is_explained(&self) -> bool {
        false
    }

    /// Whether it may be part of a deadlock. [`listed`](Self::listed) then returns what others have to know of it.
    fn may_deadlock(&self) -> bool {
        false
    }

    /// Returns what others have to know of this wait, with the holds that do not end before it. Called in a poll of its
    /// future. `None` if it cannot be part of a deadlock.
    fn listed(&self, _: &Context<'_>) -> Option<ListedWait> {
        None
    }

    /// The participle in "not acquired within 10s".
    fn verb(&self) -> &'static str {
        "acquired"
    }
}

/// The result of a successful attempt.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) reply: Reply,
    /// Just before the request was sent that the reply answers. Leases are counted from here.
    pub(crate) sent: Timestamp,
    /// As of [`sent`](Self::sent), or earlier.
    pub(crate) ahead: Ahead,
    /// When the caller had it.
    pub(crate) since: Timestamp,
    /// Whether an earlier copy of the request may still arrive.
    pub(crate) doubtful: bool,
    /// How long the caller waited. `None` if the first reply was the grant.
    pub(crate) waited: Option<Duration>,
}
