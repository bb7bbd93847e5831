//! The primitives, and the protocol between a store and its callers.
//!
//! A primitive is plain data with a pure function [`State::step`]: no I/O, no clock, no randomness. A store runs one
//! step atomically. Everything else (waiting, renewing, releasing) is written once, above the stores.

// From the top: a file uses only files below its own line, and none uses this one.
#[cfg(test)]
mod tests;

#[cfg(feature = "_fuzz")]
#[doc(hidden)]
pub mod samples;

mod hold_kind;

mod any;

pub mod rwlock;

pub mod barrier;
pub mod counter;
pub mod event;
pub mod latch;
pub mod lock;
pub mod rate_limiter;
pub mod record;
pub mod semaphore;
pub mod watchdog;

mod parts;

mod state;

mod protocol;

pub mod inspection;

mod value;

pub use any::AnyState;
pub use any::Request;
pub use hold_kind::HoldKind;
pub use parts::tombstones::Tombstones;
pub use parts::{hold_request::HoldRequest, idempotency::IdempotencyKey};
pub use parts::{wait_queue::recheck, watchers};
pub use protocol::{GRANT_WINDOW, KEEP, Notification, Reply, Signal, TOMBSTONE, Wait};
pub use state::{Context, State};
pub use value::{MAX_VALUE, Value};
