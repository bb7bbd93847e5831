//! Range checks of options that are constants. They are evaluated at compile time, so a value out of range is a compile
//! error.

use locker_core::{
    primitives::{MAX_VALUE, rate_limiter},
    ranges,
};
use std::time::Duration;

/// The shortest lease, `max_hold` and `retry_delay`.
pub const SHORTEST: Duration = ranges::SHORTEST;
/// The shortest interval of a rate limit.
pub const SHORTEST_INTERVAL: Duration = rate_limiter::SHORTEST;
/// The longest of all durations.
pub const LONGEST: Duration = ranges::LONGEST;
/// The greatest size and burst.
pub const MOST: u64 = ranges::MAX_COUNT;

/// Returns a lease, `max_hold` or `retry_delay` after checking it.
///
/// # Panics
/// If it is shorter than 1 ms or longer than 10 years.
#[must_use]
pub const fn checked_time(time: Duration) -> Duration {
    assert!(!time.is_zero(), "this duration must be longer than zero");
    assert!(time.as_nanos() >= SHORTEST.as_nanos(), "this duration must be at least 1ms");
    not_too_long(time)
}

/// Returns an interval after checking it.
///
/// # Panics
/// If it is shorter than 1 us or longer than 10 years.
#[must_use]
pub const fn checked_interval(interval: Duration) -> Duration {
    assert!(!interval.is_zero(), "this duration must be longer than zero");
    assert!(interval.as_nanos() >= SHORTEST_INTERVAL.as_nanos(), "this duration must be at least 1µs");
    not_too_long(interval)
}

/// Returns a timeout after checking it. `Duration::MAX` waits indefinitely.
///
/// # Panics
/// If it is longer than 10 years and not `Duration::MAX`.
#[must_use]
pub const fn checked_timeout(timeout: Duration) -> Duration {
    if timeout.as_nanos() == Duration::MAX.as_nanos() { timeout } else { not_too_long(timeout) }
}

/// Returns a margin after checking it.
///
/// # Panics
/// If it is longer than 10 years.
#[must_use]
pub const fn checked_margin(margin: Duration) -> Duration {
    not_too_long(margin)
}

/// Returns the length of a slot after checking it.
///
/// # Panics
/// If it is shorter than 1 s or longer than 366 days.
#[must_use]
pub const fn checked_every(every: Duration) -> Duration {
    let most = 366 * 24 * 3600 * 1_000_000_000;
    assert!(
        every.as_nanos() >= 1_000_000_000 && every.as_nanos() <= most,
        "this slot is out of range: give 1s to 366d"
    );
    every
}

/// Returns the most bytes of a result after checking it.
///
/// # Panics
/// If it is 0 or greater than 524,288.
#[must_use]
pub const fn checked_max_size(bytes: usize) -> usize {
    assert!(bytes >= 1 && bytes <= MAX_VALUE, "this size is out of range: give 1 to 524288");
    bytes
}

const fn not_too_long(time: Duration) -> Duration {
    assert!(time.as_nanos() <= LONGEST.as_nanos(), "this duration must be at most 10 years");
    time
}

/// Checks `max_hold` against the lease.
///
/// # Panics
/// If `max_hold` is shorter than the lease.
pub const fn check_max_hold(max_hold: Duration, lease: Duration) {
    assert!(max_hold.as_nanos() >= lease.as_nanos(), "`max_hold` must not be shorter than the lease");
}

/// Checks `stop_before` against the lease.
///
/// # Panics
/// If `stop_before` is more than half of the lease.
pub const fn check_stop_before(margin: Duration, lease: Duration) {
    assert!(
        margin.as_nanos() <= lease.as_nanos() / 2,
        "`stop_before` must not be more than half of the lease"
    );
}

/// Checks `min_hold` against `max_hold`.
///
/// # Panics
/// If `min_hold` is longer than `max_hold`.
pub const fn check_min_hold(min_hold: Duration, max_hold: Duration) {
    assert!(min_hold.as_nanos() <= max_hold.as_nanos(), "`min_hold` must not be longer than `max_hold`");
}

/// Checks a timeout beside options on repeated attempts.
///
/// # Panics
/// If it is zero.
pub const fn check_timeout(timeout: Duration) {
    assert!(!timeout.is_zero(), "a `timeout` of 0 allows one attempt: remove `max_retry` and `retry_delay`");
}

/// Returns a number of attempts after checking it.
///
/// # Panics
/// If it is 0.
#[must_use]
pub const fn checked_max_retry(max_retry: u32) -> u32 {
    assert!(max_retry > 0, "`max_retry` counts attempts: at least 1");
    max_retry
}

/// Returns a size or burst after checking it.
///
/// # Panics
/// If it is 0 or greater than 2^53 - 1.
#[must_use]
pub const fn checked_size(size: u64) -> u64 {
    assert!(size > 0, "a size of 0 would let nobody in");
    assert!(size <= MOST, "this is more than can be counted: at most 9007199254740991");
    size
}
