//! Delays between the attempts of a call that is retried.

use crate::id::Id;
use std::time::Duration;

/// Exponential delays from 20 ms to 1 s with jitter: each is 50 to 100 % of the full delay, so that many callers do not
/// return at the same time.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Returns the delay before the next attempt.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let full = Duration::from_millis(20 << self.0.min(6)).min(Duration::from_secs(1));
        self.0 += 1;
        full / 2 + full / 512 * Id::random().jitter(256)
    }
}
