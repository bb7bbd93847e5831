#![doc = include_str!("../README.md")]

pub use locker_macros::{limit_concurrency, lock_on_argument, rate_limit};
#[doc(hidden)]
pub use locker_runtime::private as __private;
pub use locker_runtime::{
    Admission, Algorithm, Barrier, Counter, Door, Error, ErrorKind, Event, Guard, Guards, Held, Id,
    Inspection, Key, KeyFormat, KeyPart, Latch, LockAllRequest, LockRequest, Locker, LockerBuilder, Mode,
    Pushes, Quota, RateLimiter, Result, Subscription, Timestamp, Watchdog, global, primitives, set_global,
    store, stores, try_global,
};

#[cfg(feature = "tower")]
pub use locker_runtime::tower;
