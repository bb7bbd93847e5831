//! What is asked of a record.

use crate::{
    clock::Timestamp,
    id::Id,
    primitives::{parts::hold_request::HoldRequest, protocol::Wait, value::Value},
};
use std::time::Duration;

/// A request to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Begins a run (`Acquire`), or renews or ends one without success (`Release`: the run has failed).
    ///
    /// The replies to `Acquire` are [`Begun`](crate::primitives::Reply::Begun),
    /// [`Finished`](crate::primitives::Reply::Finished), [`Mismatch`](crate::primitives::Reply::Mismatch), `Lost` if
    /// the outcome of the run before is not known, `Queued`, `Busy` and `Cancelled`.
    Hold(HoldRequest<Ask>),
    /// Ends a run with success. The reply is [`Recorded`](crate::primitives::Reply::Recorded), also to later copies, or
    /// `Lost`.
    Finish {
        /// The run.
        id: Id,
        /// The result.
        value: Value,
        /// How long the result is kept: with slots three periods. Zero if it is for the waiters alone.
        keep: Duration,
    },
}

/// What a call asks of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ask {
    /// The slots of time of which each sees one success. `None`: a success counts as long as its result is kept.
    pub slots: Option<Slots>,
    /// The digest of the arguments that calls with one key must share. `None` agrees with every digest.
    pub digest: Option<Id>,
    /// What follows if the run ends without a result and without a report of a failure.
    pub after_crash: AfterCrash,
}

impl Ask {
    /// Returns the request to begin a run.
    #[must_use]
    pub fn begin(self, id: Id, lease: Duration, wait: Option<Wait>) -> Request {
        Request::Hold(HoldRequest::Acquire { id, lease, wait, ask: self })
    }
}

/// What follows if a run ends without a result and without a report of a failure, because its lease is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AfterCrash {
    /// The next caller runs.
    #[default]
    RunAgain,
    /// The outcome is unknown: further calls get `Lost`. With slots only those of that slot.
    Refuse {
        /// How long it stays unknown, from the end of the lease. With slots three periods.
        keep: Duration,
    },
}

/// Slots of time, which follow one another without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Slots {
    /// The length of a slot.
    pub every: Duration,
    /// When slots begin, from the Unix epoch.
    pub from: Duration,
    /// How much earlier than its slot a call counts for it. The clocks of hosts and their timers are not exact.
    pub early: Duration,
}

impl Slots {
    /// Returns slots of this length from the Unix epoch, for which calls count 30 s before them, or a tenth of a slot
    /// if that is less.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        const MOST: Duration = Duration::from_secs(30);
        Self { every, from: Duration::ZERO, early: MOST.min(every / 10) }
    }

    /// Returns the beginning of the slot that a call at `time` belongs to.
    #[must_use]
    pub fn at(self, time: Timestamp) -> Timestamp {
        let since = (time + self.early - self.from).as_micros();
        Timestamp::from_micros(since - since % self.micros()) + self.from
    }

    /// Returns how many slots begin from `first` to the one before `last`.
    pub(super) fn count(self, first: Timestamp, last: Timestamp) -> u64 {
        last.as_micros().saturating_sub(first.as_micros()) / self.micros()
    }

    fn micros(self) -> u64 {
        u64::try_from(self.every.as_micros()).unwrap_or(u64::MAX).max(1)
    }
}
