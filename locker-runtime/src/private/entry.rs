//! Semaphores, read/write locks and rate limits behind attributes.

use crate::{
    error::Result,
    handles::{Admission, LockRequest, RateLimiter},
    key::{Function, FunctionDigest, Key, KeyBuilder},
    locker::Locker,
    primitives::{HoldKind, rate_limiter::Quota, rwlock::Mode},
};

/// The key of a semaphore, waiting for its arguments.
#[must_use]
pub fn semaphore_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    KeyBuilder::new(locker.prefix(), locker.key_format(), function, ":semaphore|")
}

/// The request for one permit of the semaphore `key`.
pub fn semaphore(locker: &Locker, function: &Function, key: Key, size: u64) -> LockRequest {
    locker.request(HoldKind::Semaphore { size, permits: 1 }, key).function(function.name())
}

/// The request for the lock `key` together with other readers.
pub fn read(locker: &Locker, function: &Function, key: Key) -> LockRequest {
    locker.request(HoldKind::ReadWrite(Mode::Read), key).function(function.name())
}

/// The request for the lock `key` alone, where there are readers.
pub fn write(locker: &Locker, function: &Function, key: Key) -> LockRequest {
    locker.request(HoldKind::ReadWrite(Mode::Write), key).function(function.name())
}

/// The key of a rate limit, waiting for its arguments.
#[must_use]
pub fn rate_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    KeyBuilder::new(locker.prefix(), locker.key_format(), function, ":rate|")
}

/// The rate limit `key`.
#[must_use]
pub fn rate(locker: &Locker, _: &Function, key: Key, quota: Quota) -> RateLimiter {
    locker.limiter(key, quota)
}

/// Waits for the turn.
///
/// # Errors
/// Those of `RateLimiter::acquire`.
pub async fn admit(limiter: RateLimiter) -> Result<Admission> {
    limiter.acquire().await
}

/// Waits for the turn, blocking the thread.
///
/// # Errors
/// Those of `RateLimiter::acquire_blocking`.
#[allow(clippy::needless_pass_by_value, reason = "called as `admit` is")]
pub fn admit_blocking(limiter: RateLimiter) -> Result<Admission> {
    limiter.acquire_blocking()
}
