//! What the attributes' code calls. No promises are made about anything in here.

mod each;
mod hold;
mod limits;
mod outcome;

pub use crate::{
    Quota,
    global::global,
    key::{Function, FunctionDigest, KeyBuilder},
    request::LockRequest,
};
pub use core::{
    convert::Infallible,
    mem::drop,
    module_path,
    option::Option::{None, Some},
    pin::pin,
    result::Result::{Err, Ok},
    time::Duration,
};
pub use each::{Each, Requests, acquire_each, acquire_each_blocking, each, each_key};
pub use hold::{
    Hold, Holder, acquire, acquire_blocking, call, cancel_on_lost, capture, leave, leave_checked,
};
pub use limits::{admit, admit_blocking, rate, rate_key, read, semaphore, semaphore_key, write};
pub use outcome::{FromLocker, Outcome, never};

use crate::{Key, Locker, primitives::Kind};
use std::ops::Deref;

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

#[diagnostic::do_not_recommend]
impl<D: Deref<Target: AsLocker> + ?Sized> AsLocker for D {
    fn as_locker(&self) -> &Locker {
        (**self).as_locker()
    }
}

/// Borrows what `locker = ..` named.
pub fn locker<L: AsLocker + ?Sized>(locker: &L) -> &Locker {
    locker.as_locker()
}

/// The key of a lock, waiting for its arguments.
#[must_use]
pub fn lock_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    KeyBuilder::new(locker.prefix(), locker.key_format(), function, ":lock|")
}

/// The request for the lock `key`.
pub fn lock(locker: &Locker, function: &Function, key: Key) -> LockRequest {
    locker.request(Kind::Lock, key).function(function.name())
}

/// Refuses a duration of zero where the constant is evaluated: at compile time.
///
/// # Panics
/// When it is zero.
pub const fn check_longer_than_zero(duration: Duration) {
    assert!(!duration.is_zero(), "this duration must be longer than zero");
}

/// Refuses a `max_hold` below the lease.
///
/// # Panics
/// When it is.
pub const fn check_max_hold(max_hold: Duration, lease: Duration) {
    assert!(max_hold.as_nanos() >= lease.as_nanos(), "`max_hold` must not be shorter than the lease");
}

/// Refuses `max_retry = 0`.
///
/// # Panics
/// When it is 0.
pub const fn check_max_retry(max_retry: u32) {
    assert!(max_retry > 0, "`max_retry` counts attempts: at least 1");
}

/// Refuses `size = 0` and `burst = 0`.
///
/// # Panics
/// When it is 0.
pub const fn check_size(size: u64) {
    assert!(size > 0, "a size of 0 would let nobody in");
}
