//! The state of a key, as operators see it.

use crate::id::Id;
use std::time::Duration;

/// The maximum of waiters that an inspection lists.
pub(crate) const LISTED: usize = 100;

/// The state of one key, as operators see it: without the ids of its users. A field is `None` if the kind of primitive
/// has no such value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Inspection {
    /// The total: permits, tokens per interval, parties of a barrier, or the count of a latch.
    pub size: Option<u64>,
    /// How much of the total is used now: permits that are held, tokens that are taken, or count-downs of a latch.
    pub used: Option<u64>,
    /// The current holds, oldest first.
    pub holders: Vec<Held>,
    /// The number of waiting callers.
    pub waiting: u64,
    /// The attempts of the first 100 callers that wait for a lock or for permits, in the order in which they are
    /// served. Members of a run of waiters that hold a lock on Redis one after the other have left the queue.
    #[doc(hidden)]
    #[cfg_attr(feature = "serde", serde(skip))]
    pub waiters: Vec<Id>,
    /// The time until all tokens are free again, a sent event is unsent, or a watchdog expires. Zero if it has expired.
    pub resets_in: Option<Duration>,
    /// Whether the event was sent, the watchdog has expired, the latch is open, or the barrier has had its last round.
    pub fired: Option<bool>,
    /// The value of a counter.
    pub value: Option<i64>,
}

/// One hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    /// The time since the grant, if the primitive keeps it.
    pub age: Option<Duration>,
    /// The time that is left without a renewal. `None` if the hold has no end.
    pub time_left: Option<Duration>,
    /// The fencing token. A run of waiters that hold a lock on Redis one after the other is one hold, with the fence of
    /// its last member: that of the member which holds may be lower.
    pub fence: u64,
    /// The number of permits.
    pub permits: u64,
    /// The text of the holder about itself: `LockerBuilder::note`, by default host and process. `None` if it is not
    /// known, such as for clients of a server.
    pub note: Option<String>,
    /// The part of the id that the holder's locker gives to all of its ids. It leads to the note.
    #[doc(hidden)]
    #[cfg_attr(feature = "serde", serde(skip))]
    pub tag: Option<u64>,
}

impl Held {
    /// Creates what is known of every hold.
    #[doc(hidden)]
    #[must_use]
    pub fn new(fence: u64, permits: u64) -> Self {
        Self { age: None, time_left: None, fence, permits, note: None, tag: None }
    }
}
