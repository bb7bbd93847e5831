//! The attributes [`lock_on_argument`], [`rate_limit`], [`limit_concurrency`], [`once_per`] and [`leader`];
//! by hand a [`Locker`] and its methods;
//! errors are [`Error`] with an [`ErrorKind`].
//!
#![doc = include_str!("../README.md")]

pub use locker_macros::{leader, limit_concurrency, lock_on_argument, once_per, rate_limit};
#[doc(hidden)]
pub use locker_runtime::private as __private;
pub use locker_runtime::{
    Admin, Admission, Algorithm, Barrier, Blocked, Counter, Election, Error, ErrorKind, Event, Explanation,
    Filter, FunctionSource, Grant, Guard, Guards, Held, Holder, Inspection, Key, KeyFormat, KeyPart,
    KeyedHold, Latch, Leader, Listed, LockAllRequest, LockRequest, Locker, LockerBuilder, Mode, Named,
    Observer, Once, OncePer, Page, Quota, RateLimiter, Result, Watchdog, forked, global, set_global, stores,
    try_global,
};

#[cfg(feature = "idempotent")]
pub use locker_macros::idempotent;
#[cfg(feature = "idempotent")]
pub use locker_runtime::OnceKeep;
#[cfg(feature = "mysql")]
pub use locker_runtime::mysql;
#[cfg(feature = "postgres")]
pub use locker_runtime::postgres;
#[cfg(feature = "testing")]
pub use locker_runtime::testing;
#[cfg(feature = "tower")]
pub use locker_runtime::tower;
