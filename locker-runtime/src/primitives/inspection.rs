//! What can be seen of a name from outside.

use std::time::Duration;

/// The state of one name, as far as it concerns others: never whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Inspection {
    /// How much there is in all: permits, tokens per interval, parties of a barrier, count of a latch.
    pub size: Option<u64>,
    /// How much of it is used now.
    pub used: Option<u64>,
    /// The holds in force, the oldest first.
    pub holders: Vec<Held>,
    /// How many callers wait.
    pub waiting: u64,
    /// When what is used is free again, or a watchdog expires (zero: it has).
    pub resets_in: Option<Duration>,
    /// Whether an event was sent, or a latch is open.
    pub fired: Option<bool>,
    /// The value of a counter.
    pub value: Option<i64>,
}

/// One hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    /// For how long it has been held, where the primitive keeps that.
    pub age: Option<Duration>,
    /// How long it lasts without renewal; `None`: for ever.
    pub time_left: Option<Duration>,
    /// Its fence.
    pub fence: u64,
    /// How many permits it has taken.
    pub permits: u64,
}
