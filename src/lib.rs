//! Distributed locks, rate limits and coordination as attributes on functions.

pub use locker_runtime::{
    Admission, Algorithm, Barrier, Counter, Door, Error, ErrorKind, Event, Guard, Guards, Held, Id,
    Inspection, Key, KeyFormat, Latch, LockAllRequest, LockRequest, Locker, LockerBuilder, Mode, Pushes,
    Quota, RateLimiter, Result, Subscription, Timestamp, Watchdog, global, primitives, set_global, store,
    stores, try_global,
};
