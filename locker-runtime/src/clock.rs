//! Points in time that also count while the machine sleeps.

mod coarse;

use once_cell::sync::Lazy;
use std::{
    fmt,
    ops::{Add, Sub},
    time::{Duration, SystemTime},
};

/// Microseconds since the Unix epoch on some store's clock.
///
/// [`Timestamp::now`] is this process's own: the wall clock read once, carried on by a clock that never steps. On Linux
/// and Android that one (`CLOCK_BOOTTIME`) counts while the machine is suspended; elsewhere it may stand still then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

static OFFSET: Lazy<u64> = Lazy::new(|| {
    let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    micros(wall).saturating_sub(uptime())
});

impl Timestamp {
    /// Later than everything.
    pub const NEVER: Self = Self(u64::MAX);

    /// The present moment on this process's clock.
    #[must_use]
    pub fn now() -> Self {
        Self(*OFFSET + uptime())
    }

    /// [`now`](Self::now) at less than half the price: read up to a millisecond ago, and carried on by the processor's
    /// counter. That may stand still while the machine sleeps, so for a millisecond after that it may be late, and threads
    /// may differ by two microseconds: no clock for leases.
    #[must_use]
    pub(crate) fn coarse_now() -> Self {
        coarse::now()
    }

    /// From microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` until `self`; zero when that is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at [`Timestamp::NEVER`].
impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

/// Saturates at the epoch.
impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn uptime() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn uptime() -> u64 {
    static START: Lazy<std::time::Instant> = Lazy::new(std::time::Instant::now);
    micros(START.elapsed())
}

/// When a lease that was requested at `sent` is over for its holder. Two clocks may drift apart while it lasts: a
/// thousandth of it is the allowance.
pub(crate) fn lease_deadline(sent: Timestamp, lease: Duration) -> Timestamp {
    sent + lease.saturating_sub(lease / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_saturate_instead_of_wrapping() {
        assert_eq!(Timestamp::now() + Duration::MAX, Timestamp::NEVER);
        assert_eq!(Timestamp::default() - Duration::MAX, Timestamp::default());
        assert_eq!(Timestamp::default().since(Timestamp::NEVER), Duration::ZERO);
    }

    #[test]
    fn now_is_near_the_wall_clock() {
        let wall = Timestamp(micros(SystemTime::UNIX_EPOCH.elapsed().unwrap()));
        assert!(wall.since(Timestamp::now()) < Duration::from_secs(60));
    }
}
