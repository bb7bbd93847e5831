//! The runtime of locker: primitives, stores, guards and leases.
//!
//! Applications use the crate `locker-rs` (library name `locker`), which re-exports what is here together with
//! the attributes.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[doc(hidden)]
pub mod private;

#[cfg(feature = "tower")]
pub mod tower;

mod global;

mod builder;

mod handles;

mod lease;

mod locker;

pub mod stores;

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only the store on Redis asks for renewals"))]
mod renewals;

pub mod store;

mod mailboxes;

pub mod primitives;

mod settings;

#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only stores across a network have connections")
)]
mod runtimes;

mod blocking;

mod background;

mod backoff;
mod in_flight;

mod ranges;

mod id;

mod key;

mod capacity;
mod clock;
mod diagnostics;
mod error;

mod panics;
mod sync;

mod process;

mod once;

pub use builder::LockerBuilder;
pub use clock::Timestamp;
pub use error::{Error, ErrorKind, Result};
pub use global::{global, set_global, try_global};
pub use handles::{
    Admin, Admission, Barrier, Counter, Event, Filter, FunctionSource, Grant, Guards, KeyedHold, Latch,
    Listed, LockAllRequest, LockRequest, Page, RateLimiter, Watchdog,
};
pub use id::Id;
pub use key::{Key, KeyFormat, KeyPart, Named};
pub use lease::Guard;
pub use locker::Locker;
pub use mailboxes::{Mailbox, Mailboxes};
pub use primitives::{
    HoldKind,
    inspection::Inspection,
    rate_limiter::{Algorithm, Quota},
    rwlock::Mode,
};
pub use process::forked;
