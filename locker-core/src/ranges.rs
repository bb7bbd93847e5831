//! The ranges of durations and counts, and the errors for values outside of them.

use crate::error::{Error, ErrorKind, Result};
use std::time::Duration;

/// The shortest lease, `max_hold` and `retry_delay`.
pub const SHORTEST: Duration = Duration::from_millis(1);

/// The longest of all durations: ten years.
pub const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// The greatest count: 2^53 - 1, up to which every store counts exactly.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// Reads a duration such as `1m 30s`. Returns `None` if the text is none, or has more than 15 digits.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    // humantime 2.4 panics at some sums right above the longest duration (its issue 66). Those have more digits.
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    if digits <= 15 { humantime::parse_duration(text).ok() } else { None }
}

/// Returns an error of kind `Misused`.
///
/// # Errors
/// Always.
pub fn misused<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Misused, message))
}

/// Checks that a duration is not shorter than `shortest` and not longer than ten years.
///
/// # Errors
/// `Misused`, with the name of the setting.
pub fn check_range(name: &str, value: Duration, shortest: Duration) -> Result<()> {
    let shown = humantime::format_duration(value);
    if value < shortest {
        return misused(format!("{name} {shown} is too short: give at least {shortest:?}"));
    }
    if value > LONGEST {
        return misused(format!("{name} {shown} is too long: give at most 10 years"));
    }
    Ok(())
}

/// Checks that `number` is not greater than [`MAX_COUNT`].
///
/// # Errors
/// `Misused`, with the name of the setting.
pub fn check_count(name: &str, number: u64) -> Result<()> {
    if number <= MAX_COUNT {
        return Ok(());
    }
    misused(format!("{name} {number} is out of range: give at most {MAX_COUNT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_too_many_digits_is_no_duration() {
        assert_eq!(parse_duration("1m 30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("999999999999999ns"), Some(Duration::from_nanos(999_999_999_999_999)));
        for text in ["1", "90 fortnights", "18446744073709551615s 1000ms", "584542046090y 19755615s 1000ms"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
