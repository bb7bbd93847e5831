//! What the attributes' code calls. No promises are made about anything in here.

mod hold;
mod outcome;

pub use crate::{
    key::{Function, FunctionDigest, KeyBuilder},
    locker::{LockRequest, global},
};
pub use core::{
    convert::Infallible,
    module_path,
    option::Option::{None, Some},
    pin::pin,
    result::Result::{Err, Ok},
    time::Duration,
};
pub use hold::{Hold, Holder, acquire, acquire_blocking, cancel_on_lost, leave, leave_checked};
pub use outcome::{Outcome, never};

use crate::{
    Key, Locker,
    locker::Kind,
};
use std::sync::Arc;

/// What `locker = ..` may be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a locker: `locker = ..` takes a `Locker`, `&Locker` or `Arc<Locker>`",
    label = "not a locker"
)]
pub trait AsLocker {
    /// Borrows the locker.
    fn as_locker(&self) -> &Locker;
}

impl AsLocker for Locker {
    fn as_locker(&self) -> &Locker {
        self
    }
}

impl<L: AsLocker + ?Sized> AsLocker for &L {
    fn as_locker(&self) -> &Locker {
        (**self).as_locker()
    }
}

impl<L: AsLocker + ?Sized> AsLocker for Arc<L> {
    fn as_locker(&self) -> &Locker {
        (**self).as_locker()
    }
}

/// The key of a lock, waiting for its arguments.
pub fn lock_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    KeyBuilder::new(locker.prefix(), locker.key_format(), function, ":lock|")
}

/// The request for the lock `key`.
pub fn lock(locker: &Locker, key: Key) -> LockRequest {
    locker.request(Kind::Lock, key)
}

/// Never releases: the lease in force when the function ends runs out.
pub fn release_on_expiry(request: LockRequest) -> LockRequest {
    request.release_on_expiry()
}

/// Refuses a lease of zero where the constant is evaluated: at compile time.
pub const fn check_lease(lease: Duration) {
    assert!(!lease.is_zero(), "the lease must be longer than zero");
}

/// Refuses a `max_hold` below the lease.
pub const fn check_max_hold(max_hold: Duration, lease: Duration) {
    assert!(max_hold.as_nanos() >= lease.as_nanos(), "max_hold must not be shorter than the lease");
}

/// Refuses `max_retry = 0`.
pub const fn check_max_retry(max_retry: u32) {
    assert!(max_retry > 0, "max_retry counts attempts: at least 1");
}
