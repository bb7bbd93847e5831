//! Delays between the attempts of a call that is retried.

use crate::id::Id;
use std::time::Duration;

/// Exponential delays with jitter, by default from 20 ms to 1 s. Each is 50 to 100 % of the full delay, so that many
/// callers do not return at the same time.
#[derive(Debug)]
pub struct Backoff {
    full: Duration,
    longest: Duration,
}

impl Backoff {
    /// Returns delays that double from `first` to `longest`.
    #[must_use]
    pub const fn between(first: Duration, longest: Duration) -> Self {
        Self { full: first, longest }
    }

    /// Returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let full = self.full;
        self.full = (2 * full).min(self.longest);
        full / 2 + full / 512 * Id::random().jitter(256)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::between(Duration::from_millis(20), Duration::from_secs(1))
    }
}
