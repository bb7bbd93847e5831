//! How long to wait before trying again.

use crate::id::Id;
use std::time::Duration;

/// Delays that double from 20 ms to 1 s, jittered so that many callers do not return at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    pub(crate) fn next_delay(&mut self) -> Duration {
        let full = Duration::from_millis(20 << self.0.min(6)).min(Duration::from_secs(1));
        self.0 += 1;
        full / 2 + full / 512 * Id::random().jitter(256)
    }
}
