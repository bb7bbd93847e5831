//! The ranges of numbers and durations that the runtime accepts, for values known at compile time. They are a copy,
//! because the runtime is not linked into the compiler with this crate; a test compares both.

use std::{ops::RangeInclusive, time::Duration};

/// The shortest lease, `max_hold` and `retry_delay`.
pub(crate) const SHORTEST: Duration = Duration::from_millis(1);

/// The shortest interval of a rate limit.
pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_micros(1);

/// The longest duration of any option.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// The lengths of slots.
pub(crate) const EVERY: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(366 * 24 * 3600);

/// The most bytes of a result that is kept.
pub(crate) const MAX_SIZE: u64 = 512 * 1024;

/// The largest size and burst.
pub(crate) const MOST: u64 = (1 << 53) - 1;

#[cfg(test)]
mod tests {
    use locker::__private as runtime;

    #[test]
    fn ranges_match_the_runtime() {
        assert_eq!(super::SHORTEST, runtime::SHORTEST);
        assert_eq!(super::SHORTEST_INTERVAL, runtime::SHORTEST_INTERVAL);
        assert_eq!(super::LONGEST, runtime::LONGEST);
        assert_eq!(super::MOST, runtime::MOST);
    }
}
