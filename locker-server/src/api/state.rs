//! The JSON bodies about names.

use super::resource::Resource;
use locker_runtime::{
    FunctionSource,
    primitives::inspection::{Held, Inspection},
};
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// A key in use: a name, or a function with an attribute and its arguments.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyInUse {
    pub(crate) kind: &'static str,
    /// The name. Keys of functions have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) name: Option<String>,
    /// The function, if a process has told the store about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) function: Option<Function>,
    /// The whole key: `after` of the next page.
    pub(crate) key: String,
}

/// A function with an attribute.
#[derive(Serialize, ToSchema)]
pub(crate) struct Function {
    name: String,
    file: String,
    line: u32,
}

impl From<FunctionSource> for Function {
    fn from(source: FunctionSource) -> Self {
        Self { name: source.name, file: source.file, line: source.line }
    }
}

/// The state of a name; times in milliseconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct State<'a> {
    kind: &'static str,
    name: &'a str,
    /// Tokens per interval, slots, callers of a barrier's round, or count-downs of a latch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    size: Option<u64>,
    /// How many of them are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used: Option<u64>,
    /// The holds of a semaphore or a lock.
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
    /// Whether a latch is open, or a barrier has opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    open: Option<bool>,
    /// Whether a success is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    done: Option<bool>,
    /// The value of a counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    value: Option<i64>,
    /// The time until everything in use is free again, a watchdog expires, or a sent event or a success is forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    time_left: Option<u64>,
}

/// A hold of a semaphore or a lock; times in milliseconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct Holder {
    /// `null` for locks.
    #[schema(required)]
    age: Option<u64>,
    /// `null` if the hold lasts until it is released.
    #[schema(required)]
    time_left: Option<u64>,
    fence: u64,
    /// The side of a read/write lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    mode: Option<&'static str>,
    /// What the holder says about itself. Clients of a server say nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    note: Option<String>,
}

impl<'a> State<'a> {
    pub(crate) fn new(resource: Resource, name: &'a str, seen: &Inspection) -> Self {
        let holder = |held: &Held| Holder {
            age: held.age.map(millis),
            time_left: held.time_left.map(millis),
            fence: held.fence,
            mode: (resource == Resource::RwLock).then_some(if held.permits == 1 { "read" } else { "write" }),
            note: held.note.clone(),
        };
        // The permits of a read/write lock are beyond all numbers that a client could use.
        let count = |number: Option<u64>| number.filter(|_| resource != Resource::RwLock);
        Self {
            kind: resource.segment(),
            name,
            size: count(seen.size),
            used: count(seen.used),
            holders: resource.is_held().then(|| seen.holders.iter().map(holder).collect()),
            waiting: seen.waiting,
            sent: seen.fired.filter(|_| resource == Resource::Event),
            expired: seen.fired.filter(|_| resource == Resource::Watchdog),
            open: seen.fired.filter(|_| matches!(resource, Resource::Latch | Resource::Barrier)),
            done: seen.fired.filter(|_| resource == Resource::Once),
            value: seen.value,
            time_left: seen.resets_in.map(millis),
        }
    }
}

/// Returns whole milliseconds, rounded down.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
