//! The building blocks of the primitives.

// From the top: a file uses only files below its own line.
pub(super) mod wait_queue;
pub mod watchers;

pub(super) mod tombstones;

pub(super) mod reply_cache;
pub(super) mod ticket_queue;

pub(super) mod hold_request;

pub(super) mod idempotency;
