//! The runtime of locker: primitives, stores, guards and leases.
//!
//! Applications use the crate `locker-rs` (library name `locker`), which re-exports what is here together with
//! the attributes.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[doc(hidden)]
pub mod private;

#[cfg(feature = "_fuzz")]
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "tower")]
pub mod tower;

mod global;

#[cfg(feature = "_control")]
pub mod testing;

mod builder;

mod handles;

mod lease;

mod locker;

pub mod stores;

mod settings;

pub use builder::LockerBuilder;
pub use global::{global, set_global, try_global};
#[cfg(feature = "idempotent")]
pub use handles::OnceKeep;
pub use handles::{
    Admin, Admission, Barrier, Counter, Election, Event, Explanation, Filter, FunctionSource, Grant, Guards,
    KeyedHold, Latch, Leader, Listed, LockAllRequest, LockRequest, Observer, Once, OncePer, Page,
    RateLimiter, Watchdog,
};
pub use lease::Guard;
pub use locker::Locker;
pub use locker_core::{
    error::{Blocked, Error, ErrorKind, Holder, Result},
    key::{Key, KeyFormat, KeyPart, Named},
    primitives::{
        self, HoldKind,
        inspection::{Held, Inspection},
        rate_limiter::{Algorithm, Quota},
        rwlock::Mode,
    },
    process::forked,
};
