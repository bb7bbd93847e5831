//! Distributed locks, rate limits and coordination as attributes on functions.

pub use locker_runtime::{
    Error, ErrorKind, Guard, Id, Key, KeyFormat, LockRequest, Locker, LockerBuilder, Pushes, Result,
    Subscription, Timestamp, global, primitives, set_global, store, stores, try_global,
};
