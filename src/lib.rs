//! Distributed locks, rate limits and coordination as attributes on functions.

pub use locker_runtime::{Error, ErrorKind, Result};
