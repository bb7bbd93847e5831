//! The JSON bodies about names.

use super::resource::Resource;
use locker_runtime::primitives::inspection::{Held, Inspection};
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// A name in use.
#[derive(Serialize, ToSchema)]
pub(crate) struct NameInUse {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

/// The state of a name; times in milliseconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct State<'a> {
    kind: &'static str,
    name: &'a str,
    /// Tokens per interval, or slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    size: Option<u64>,
    /// How many of them are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used: Option<u64>,
    /// The holds of a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    holders: Option<Vec<Holder>>,
    /// The number of waiting calls.
    waiting: u64,
    /// Whether an event was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sent: Option<bool>,
    /// Whether a watchdog has expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expired: Option<bool>,
    /// The time until everything in use is free again, a watchdog expires, or a sent event is forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    time_left: Option<u64>,
}

/// A hold of a semaphore; times in milliseconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct Holder {
    #[schema(required)]
    age: Option<u64>,
    /// `null` if the hold lasts until it is released.
    #[schema(required)]
    time_left: Option<u64>,
    fence: u64,
}

impl<'a> State<'a> {
    pub(crate) fn new(resource: Resource, name: &'a str, seen: &Inspection) -> Self {
        let holder = |held: &Held| Holder {
            age: held.age.map(millis),
            time_left: held.time_left.map(millis),
            fence: held.fence,
        };
        Self {
            kind: resource.segment(),
            name,
            size: seen.size,
            used: seen.used,
            holders: (resource == Resource::Semaphore).then(|| seen.holders.iter().map(holder).collect()),
            waiting: seen.waiting,
            sent: seen.fired.filter(|_| resource == Resource::Event),
            expired: seen.fired.filter(|_| resource == Resource::Watchdog),
            time_left: seen.resets_in.map(millis),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
