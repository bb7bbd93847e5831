//! The settings of a call, and their defaults.

use locker_core::{
    backoff::Backoff,
    error::Result,
    ranges::{self, check_range, misused},
};
use std::time::Duration;

/// The settings of a call. Those that it does not set come from its locker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) timeout: Duration,
    pub(crate) max_retry: Option<u32>,
    pub(crate) retry_delay: Duration,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
    /// The last part of the lease, in which it counts as lost. Zero: none.
    pub(crate) stop_before: Duration,
    /// Zero: none.
    pub(crate) min_hold: Duration,
    pub(crate) fair: bool,
    /// Whether it is normal that it is waited for and held for long.
    pub(crate) is_long: bool,
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
            stop_before: Duration::ZERO,
            min_hold: Duration::ZERO,
            fair: true,
            is_long: false,
        }
    }
}

/// The pauses after errors of a call that waits for long.
const LONG_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The default time between two attempts.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(2);

impl Settings {
    /// Checks that each setting is in its range and that they do not contradict each other.
    ///
    /// # Errors
    /// `Misused`, naming the setting.
    pub(crate) fn check(&self) -> Result<()> {
        check_range("lease", self.lease, ranges::SHORTEST)?;
        check_range("retry_delay", self.retry_delay, ranges::SHORTEST)?;
        if self.timeout != Duration::MAX {
            check_range("timeout", self.timeout, Duration::ZERO)?;
        }
        if self.max_retry == Some(0) {
            return misused("max_retry 0 is out of range: it counts all attempts, so give at least 1");
        }
        check_range("min_hold", self.min_hold, Duration::ZERO)?;
        let shown = humantime::format_duration;
        if self.stop_before > self.lease / 2 {
            let (margin, lease) = (shown(self.stop_before), shown(self.lease));
            return misused(format!("stop_before {margin} is more than half of the lease {lease}"));
        }
        match self.max_hold {
            Some(_) if !self.renew => {
                misused("max_hold has no effect if renew is false: remove it, the hold ends with its lease")
            }
            Some(max_hold) if max_hold < self.lease => misused(format!(
                "max_hold {} is shorter than the lease {}: give at least the lease",
                shown(max_hold),
                shown(self.lease)
            )),
            Some(max_hold) if max_hold < self.min_hold => misused(format!(
                "min_hold {} is longer than max_hold {}: give at most that",
                shown(self.min_hold),
                shown(max_hold)
            )),
            Some(max_hold) => check_range("max_hold", max_hold, ranges::SHORTEST),
            None => Ok(()),
        }
    }

    /// Returns the settings of a candidate in an election, which waits as long as it takes.
    pub(crate) fn of_candidate(self) -> Self {
        let retry_delay = LONG_PAUSES.1;
        Self { timeout: Duration::MAX, max_retry: None, retry_delay, is_long: true, ..self }
    }

    /// Returns the pauses after errors.
    pub(crate) fn pauses(&self) -> Backoff {
        let (first, longest) = LONG_PAUSES;
        if self.is_long { Backoff::between(first, longest) } else { Backoff::default() }
    }

    /// Returns the part of the lease in which the hold does not count as lost.
    pub(crate) fn usable(&self) -> Duration {
        self.lease.saturating_sub(self.stop_before)
    }

    /// Returns the limits of a wait with these settings.
    pub(crate) fn patience(&self) -> Patience {
        let Self { timeout, max_retry, retry_delay, .. } = *self;
        Patience { timeout, max_retry, retry_delay }
    }
}

/// Returns a lease that lasts for `rest`, and a quarter of `lease` longer, so that a release comes before its end.
pub(crate) fn covering(rest: Duration, lease: Duration) -> Duration {
    rest.saturating_add(lease / 4)
}

/// The limits of a wait: its duration, the number of attempts, and the time between two of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) timeout: Duration,
    pub(crate) max_retry: Option<u32>,
    pub(crate) retry_delay: Duration,
}

impl Patience {
    /// Creates limits without a fixed time between attempts: the replies of the store say when to ask again.
    pub(crate) fn up_to(timeout: Duration) -> Self {
        Self { timeout, max_retry: None, retry_delay: Duration::MAX }
    }
}

/// The setters of how a call waits, for a type with the field `settings`.
macro_rules! waiting_setters {
    () => {
        /// Sets how long other callers wait if a holder dies: a hold ends this long after its last renewal.
        /// Default 10 s, 1 ms to 10 years.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.settings.lease = lease;
            self
        }

        /// Sets how long a call waits: for all locks together if it asks for several. Default 10 s, at most 10 years.
        /// Zero tries once, whatever `max_retry` says; [`Duration::MAX`] waits indefinitely.
        pub fn timeout(mut self, timeout: Duration) -> Self {
            self.settings.timeout = timeout;
            self
        }

        /// Sets how many attempts a call makes, the first one included. They are `retry_delay` apart; a hand-off in
        /// between is no attempt. At least 1. Default: as many as fit into the timeout.
        pub fn max_retry(mut self, attempts: u32) -> Self {
            self.settings.max_retry = Some(attempts);
            self
        }

        /// Sets the time between two attempts if `max_retry` is set. Default 2 s, 1 ms to 10 years.
        ///
        /// Without `max_retry` it is the longest pause after an error. On Redis, a waiter for a lock asks again itself
        /// only if this is shorter than 2 s; otherwise its process asks for all of its waiters.
        pub fn retry_delay(mut self, delay: Duration) -> Self {
            self.settings.retry_delay = delay;
            self
        }
    };
}
pub(crate) use waiting_setters;

/// The setters of the margins of a hold, for a type with the field `settings`.
macro_rules! margin_setters {
    () => {
        /// Sets how long before the end of its lease a hold that is not renewed in time counts as lost: its guard says
        /// so, and an async function is cancelled. What is on its way then has this time to arrive before another
        /// caller is granted the lock: the hold is not released, but ends by its lease. Default 0, at most half of the
        /// lease.
        ///
        /// It also comes off `max_hold`. Renewals come after a third of what is left of the lease, and an outage of the
        /// store is survived for that much less. A stopped process notices nothing: [fence][page] what must not happen
        /// twice.
        ///
        /// Source: the lock-delay of Consul, which began in Chubby.
        ///
        /// [page]: https://github.com/locker-rs/locker/blob/main/docs/how-to/fence-a-write.md
        pub fn stop_before(mut self, margin: Duration) -> Self {
            self.settings.stop_before = margin;
            self
        }

        /// Sets how long a hold lasts at least, also if its function fails: until then nobody else is granted the
        /// lock. The release returns at once, after one renewal for the rest of the time, and this process ends the
        /// hold when it is over. If the process ends before, the hold lasts at most a lease longer. A hold that is lost
        /// before ends all the same. Default 0, at most `max_hold`, or 10 years.
        pub fn min_hold(mut self, min_hold: Duration) -> Self {
            self.settings.min_hold = min_hold;
            self
        }
    };
}
pub(crate) use margin_setters;

/// The setters of what a call holds, for a type with the field `settings`.
macro_rules! hold_setters {
    () => {
        /// Sets whether the lease is renewed while the guard lives. Default `true`. With `false` a hold that is not
        /// released within its lease is lost.
        pub fn renew(mut self, renew: bool) -> Self {
            self.settings.renew = renew;
            self
        }

        /// Sets the longest time that a guard is held, renewals included. Then the hold is released and counts as lost;
        /// with `stop_before` it is lost that much earlier. From the lease to 10 years, and only if the lease is
        /// renewed. Default: none, the lease is renewed while the guard lives, and a `tracing` warning says so every 10
        /// leases.
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            self.settings.max_hold = Some(max_hold);
            self
        }

        /// Sets whether the caller keeps its place in the queue. Default `true`.
        ///
        /// `false` allows barging: the caller may take a free lock ahead of other unfair waiters. A fair waiter at the
        /// head of the queue is never overtaken. A fair waiter behind unfair ones waits as long as those are overtaken.
        pub fn fair(mut self, fair: bool) -> Self {
            self.settings.fair = fair;
            self
        }
    };
}
pub(crate) use hold_setters;
