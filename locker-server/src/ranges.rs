//! The ranges of numbers that clients and options may give.

use std::time::Duration;

/// The longest time: 10 years. Longer times are clamped to it or mean "indefinitely".
pub(crate) const MAX_TIME: Duration = Duration::from_hours(10 * 366 * 24);

/// The largest number of tokens. Larger sizes are clamped to it.
pub(crate) const MAX_TOKENS: u64 = (1 << 53) - 1;
