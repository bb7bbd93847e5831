//! What an attempt is told, and what it tells: the requests, the patience, the answer.

use crate::{
    clock::Timestamp,
    id::Id,
    primitives::{GRANT_WINDOW, Reply, Request, Wait},
};
use std::time::Duration;

/// The requests of one attempt, whatever the primitive.
pub(crate) trait WaitOp {
    fn id(&self) -> Id;
    fn ask(&self, wait: Option<Wait>) -> Request;
    fn cancel(&self, tombstone: bool) -> Request;

    /// Sent when a push says that the caller has been served; `None`: asking again does it.
    fn confirm(&self) -> Option<Request> {
        None
    }

    /// How long what is asked for lasts.
    fn lease(&self) -> Duration {
        GRANT_WINDOW
    }

    /// Whether it is kept when that is over.
    fn renews(&self) -> bool {
        true
    }

    fn fair(&self) -> bool {
        true
    }

    /// Whether to wait until the deadline for a turn that lies beyond it.
    fn waits_past_timeout(&self) -> bool {
        false
    }

    /// The longest time until a waiter asks again, where the store names a longer one.
    fn longest_recheck(&self) -> Duration {
        Duration::MAX
    }

    /// Whether others may have gone on with a caller whose patience is over: it then asks a last time, to know.
    fn needs_final_check(&self) -> bool {
        false
    }

    /// What did not happen when a wait was in vain.
    fn verb(&self) -> &'static str {
        "acquired"
    }
}

/// The end of a successful attempt.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) reply: Reply,
    /// Just before the request was sent that the reply answers: leases are counted from here.
    pub(crate) sent: Timestamp,
    /// When the caller had it.
    pub(crate) since: Timestamp,
    /// Whether an earlier copy of the request may still arrive.
    pub(crate) doubtful: bool,
    /// How long it took, when it was not had at once.
    pub(crate) waited: Option<Duration>,
}
