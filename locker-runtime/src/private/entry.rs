//! The semaphores, read/write locks and rate limits of attributes.

use crate::{
    handles::{Admission, LockRequest, Origin, RateLimiter},
    locker::Locker,
};
use locker_core::{
    error::Result,
    key::{Function, FunctionDigest, Key, KeyBuilder},
    primitives::{HoldKind, rate_limiter::Quota, rwlock::Mode},
};

/// Returns the builder of a semaphore's key; the arguments follow.
#[must_use]
pub fn semaphore_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    super::key_builder(locker, function, ":semaphore|")
}

/// Returns the request for one permit of the semaphore `key`.
pub fn semaphore(locker: &Locker, function: &'static Function, key: Key, size: u64) -> LockRequest {
    locker.request(HoldKind::Semaphore { size, permits: 1 }, key).origin(Origin::Function(function))
}

/// Returns the request for the lock `key` in read mode: shared with other readers.
pub fn read(locker: &Locker, function: &'static Function, key: Key) -> LockRequest {
    locker.request(HoldKind::ReadWrite(Mode::Read), key).origin(Origin::Function(function))
}

/// Returns the request for the lock `key` in write mode: exclusive.
pub fn write(locker: &Locker, function: &'static Function, key: Key) -> LockRequest {
    locker.request(HoldKind::ReadWrite(Mode::Write), key).origin(Origin::Function(function))
}

/// Returns the builder of a rate limit's key; the arguments follow.
#[must_use]
pub fn rate_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    super::key_builder(locker, function, ":rate|")
}

/// Returns the rate limiter `key`.
#[must_use]
pub fn rate(locker: &Locker, function: &'static Function, key: Key, quota: Quota) -> RateLimiter {
    locker.limiter(key, quota).function(function.path())
}

/// Waits until the limiter admits the call.
///
/// # Errors
/// Those of `RateLimiter::acquire`.
pub async fn admit(limiter: RateLimiter) -> Result<Admission> {
    limiter.acquire().await
}

/// Waits until the limiter admits the call and blocks the thread.
///
/// # Errors
/// Those of `RateLimiter::acquire_blocking`.
#[allow(clippy::needless_pass_by_value, reason = "same signature as `admit`")]
pub fn admit_blocking(limiter: RateLimiter) -> Result<Admission> {
    limiter.acquire_blocking()
}
