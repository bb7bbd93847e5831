//! The runtime of locker: primitives, stores, guards and leases.
//!
//! Applications use the crate `locker-rs` (library name `locker`), which re-exports what is here together with
//! the attributes.

mod background;
mod backoff;
mod blocking;
mod clock;
mod config;
mod diagnostics;
mod door;
mod errands;
mod error;
mod global;
mod guard;
mod handles;
mod id;
mod key;
mod lease;
mod locker;
mod panics;
pub mod primitives;
#[doc(hidden)]
pub mod private;
mod pushes;
mod request;
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only stores across a network have connections")
)]
mod runtimes;
pub mod store;
pub mod stores;
mod sync;
#[cfg(feature = "tower")]
pub mod tower;

pub use clock::Timestamp;
pub use config::LockerBuilder;
pub use door::{Door, Held};
pub use error::{Error, ErrorKind, Result};
pub use global::{global, set_global, try_global};
pub use guard::Guard;
pub use handles::{Admission, Barrier, Counter, Event, Guards, Latch, LockAllRequest, RateLimiter, Watchdog};
pub use id::Id;
pub use key::{Key, KeyFormat, KeyPart};
pub use locker::Locker;
pub use primitives::{
    Kind,
    inspection::Inspection,
    rate_limiter::{Algorithm, Quota},
    rwlock::Mode,
};
pub use pushes::{Pushes, Subscription};
pub use request::LockRequest;
