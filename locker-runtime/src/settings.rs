//! What a call may choose for itself, and the defaults.

use crate::{
    error::Result,
    ranges::{self, check_range, misused},
};
use std::time::Duration;

/// Everything a call may choose for itself, with the defaults of the locker it is made on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) timeout: Duration,
    pub(crate) max_retry: Option<u32>,
    pub(crate) retry_delay: Duration,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) fair: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            max_retry: None,
            retry_delay: RETRY_DELAY,
            renew: true,
            max_hold: None,
            fair: true,
        }
    }
}

/// The default time between two attempts.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The default time to wait for one reply of a store.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

impl Settings {
    /// Refuses what cannot be meant, by name.
    pub(crate) fn check(&self) -> Result<()> {
        check_range("lease", self.lease, ranges::SHORTEST)?;
        check_range("retry_delay", self.retry_delay, ranges::SHORTEST)?;
        if self.timeout != Duration::MAX {
            check_range("timeout", self.timeout, Duration::ZERO)?;
        }
        if self.max_retry == Some(0) {
            return misused("max_retry is 0: it counts attempts, the first one included, so give 1 or more");
        }
        match self.max_hold {
            Some(_) if !self.renew => {
                misused("max_hold has no meaning with renew(false): the lease ends the hold")
            }
            Some(max_hold) if max_hold < self.lease => misused(format!(
                "max_hold {} is shorter than the lease {}",
                humantime::format_duration(max_hold),
                humantime::format_duration(self.lease)
            )),
            Some(max_hold) => check_range("max_hold", max_hold, ranges::SHORTEST),
            None => Ok(()),
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        let Self { timeout, max_retry, retry_delay, .. } = *self;
        Patience { timeout, max_retry, retry_delay }
    }

    /// How long a hold may last with all its renewals.
    pub(crate) fn longest_hold(&self) -> Duration {
        if self.renew { self.max_hold.unwrap_or(self.lease.saturating_mul(10)) } else { self.lease }
    }
}

/// How long and how often a caller asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) timeout: Duration,
    pub(crate) max_retry: Option<u32>,
    pub(crate) retry_delay: Duration,
}

impl Patience {
    /// For what is told, not polled: asking again is up to the store's answers.
    pub(crate) fn up_to(timeout: Duration) -> Self {
        Self { timeout, max_retry: None, retry_delay: Duration::MAX }
    }
}
