//! The ranges of durations and counts, and the errors for values outside of them.

use crate::error::{Error, ErrorKind, Result};
use humantime::DurationError;
use std::time::Duration;

/// The shortest lease, `max_hold` and `retry_delay`.
pub const SHORTEST: Duration = Duration::from_millis(1);

/// The longest of all durations: ten years.
pub const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// The greatest count: 2^53 - 1, up to which every store counts exactly.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// Reads a duration such as `1m 30s`.
///
/// # Errors
/// Those of [`humantime::parse_duration`], which panics at some sums right above the longest duration (2.4, issue 66).
pub fn parse_duration(text: &str) -> std::result::Result<Duration, DurationError> {
    let (mut sum, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let unit = rest.find(char::is_alphabetic).unwrap_or(rest.len());
        let end =
            rest[unit..].find(|next: char| next.is_ascii_digit()).map_or(rest.len(), |digit| unit + digit);
        let (part, others) = rest.split_at(end);
        // The error of the whole text names the place in it.
        let Ok(part) = humantime::parse_duration(part) else { break };
        sum = sum.checked_add(part).ok_or(DurationError::NumberOverflow)?;
        rest = others;
    }
    if rest.is_empty() && !text.is_empty() { Ok(sum) } else { humantime::parse_duration(text) }
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
    fn durations_are_those_of_humantime() {
        let long = "1day 15h 40m 57s 142ms 857us 143ns";
        for text in [
            "1m 30s",
            "1m30s",
            " 1 h\t30 m ",
            "0.5s",
            "1.5h 2s",
            "90min",
            "5µs",
            long,
            "",
            " ",
            "1",
            "-1s",
            "1h-2s",
            "1h 30",
            "s",
            "1.s",
            "1x 2s",
            "1s 2x",
            "99999999999999999999s",
            "1e3s",
            "1s,2s",
            "600000000000y",
        ] {
            let (own, theirs) = (parse_duration(text), humantime::parse_duration(text));
            assert_eq!(
                own.map_err(|error| error.to_string()),
                theirs.map_err(|error| error.to_string()),
                "{text}"
            );
        }
    }

    #[test]
    fn duration_above_the_longest_is_refused() {
        assert_eq!(parse_duration("18446744073709551615s 999ms"), Ok(Duration::new(u64::MAX, 999_000_000)));
        for text in [
            "18446744073709551615s 1000ms",
            "0.64s018446744073709551615.36s",
            "584542046090y 19767615s 1000ms",
        ] {
            assert_eq!(parse_duration(text), Err(DurationError::NumberOverflow), "{text}");
        }
    }
}
