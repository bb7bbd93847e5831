//! What the runtime accepts, for values that are known here. A copy: the runtime is not linked into the compiler with
//! this crate. A test keeps both equal.

use std::time::Duration;

/// Of a lease, `max_hold` and `retry_delay`.
pub(crate) const SHORTEST: Duration = Duration::from_millis(1);

pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_micros(1);

/// Of all durations.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Of a size and a burst.
pub(crate) const MOST: u64 = (1 << 53) - 1;

#[cfg(test)]
mod tests {
    use locker::__private as runtime;

    #[test]
    fn limits_are_those_of_the_runtime() {
        assert_eq!(super::SHORTEST, runtime::SHORTEST);
        assert_eq!(super::SHORTEST_INTERVAL, runtime::SHORTEST_INTERVAL);
        assert_eq!(super::LONGEST, runtime::LONGEST);
        assert_eq!(super::MOST, runtime::MOST);
    }
}
