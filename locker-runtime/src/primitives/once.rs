//! A change that is made once, however many copies of the request come, and when: what comes after it may be another's.

use super::{HoldRequest, Request, counter, event, watchdog};
use crate::id::Id;

/// An attempt at such a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IdempotencyKey {
    /// The same in every copy.
    pub attempt: Id,
    /// An earlier copy may still arrive: those that come after this one are refused.
    pub repeated: bool,
}

impl IdempotencyKey {
    pub(crate) fn new(attempt: Id) -> Self {
        Self { attempt, repeated: false }
    }
}

impl Request {
    /// Says, to those who want to know, that an earlier copy may still arrive.
    pub(crate) fn set_retried(&mut self) {
        let once = match self {
            Self::Semaphore(HoldRequest::Renew { once, .. } | HoldRequest::Release { once, .. }) => {
                once.as_mut()
            }
            Self::Event(event::Request::Send { once, .. } | event::Request::Reset { once })
            | Self::Watchdog(watchdog::Request::Kick { once, .. })
            | Self::Counter(counter::Request::Set { once, .. })
            | Self::Delete(once) => Some(once),
            _ => None,
        };
        if let Some(once) = once {
            once.repeated = true;
        }
    }
}
