//! The core of locker: primitives, the trait of stores, and the embedded store.
//!
//! Applications use the crate `locker-rs`. What is public here is so for the other crates of locker, and may change
//! with each version.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
pub mod renewals;

pub mod store;

pub mod mailboxes;

pub mod primitives;

pub mod runtimes;

pub mod blocking;

pub mod background;

pub mod backoff;
pub mod in_flight;

pub mod ranges;

pub mod id;

pub mod key;

pub mod capacity;
pub mod clock;
pub mod diagnostics;
pub mod error;

pub mod panics;
pub mod sync;

pub mod process;

pub mod once;
