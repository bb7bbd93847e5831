//! The events of a stream.

use serde::Serialize;

/// One event: its name, and a JSON document on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) data: String,
}

impl Event {
    pub(super) fn new(name: &'static str, data: &impl Serialize) -> Self {
        // Only maps with other keys than texts fail.
        Self { name, data: serde_json::to_string(data).unwrap_or_default() }
    }
}

/// The data of `error`.
#[derive(Serialize)]
pub(super) struct Failed<'a> {
    pub(super) text: &'a str,
}
