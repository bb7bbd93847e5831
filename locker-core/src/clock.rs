//! Points in time on a clock that also advances during suspend.

mod coarse;

#[cfg(feature = "_world")]
use crate::process::world;
use once_cell::race::OnceBox;
use std::{
    fmt,
    ops::{Add, Sub},
    time::{Duration, SystemTime},
};

/// A point in time in microseconds since the Unix epoch, on the clock of a store or of this process.
///
/// Timestamps of different clocks cannot be compared. The clock of this process, [`Timestamp::now`], reads the wall
/// clock once and then advances with a monotonic clock, so it never steps. On Linux and Android (`CLOCK_BOOTTIME`) it
/// also advances while the machine is suspended; on other systems it may pause.
///
/// The default is the Unix epoch. Additions saturate at [`Timestamp::NEVER`], subtractions at the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(any(feature = "serde", feature = "_cas"), derive(serde::Serialize, serde::Deserialize))]
pub struct Timestamp(u64);

fn offset() -> u64 {
    // No cell that waits: another thread may be setting it when this thread forks.
    static OFFSET: OnceBox<u64> = OnceBox::new();
    *OFFSET.get_or_init(|| {
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Box::new(micros(wall).saturating_sub(uptime()))
    })
}

impl Timestamp {
    /// The latest timestamp: a deadline that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the present time on this process's clock.
    #[must_use]
    pub fn now() -> Self {
        #[cfg(feature = "_world")]
        if let Some(now) = world::now() {
            return Self(now);
        }
        Self(offset() + uptime())
    }

    /// Returns the present time of the clock that all processes of a world share; without a world, [`now`](Self::now).
    #[cfg(feature = "_world")]
    #[must_use]
    pub fn shared_now() -> Self {
        world::current().map_or_else(Self::now, |world| Self(world.shared_now()))
    }

    /// Returns the present time at less than half the cost of [`now`](Self::now): a reading that is up to 1 ms old,
    /// advanced by the processor's counter.
    ///
    /// Not for leases: it may be late during the first millisecond after a suspend, and threads may differ by 2 us.
    #[must_use]
    pub(crate) fn coarse_now() -> Self {
        #[cfg(feature = "_world")]
        if let Some(now) = world::now() {
            return Self(now);
        }
        coarse::now()
    }

    /// Creates a timestamp from microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is not earlier.
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
    static START: OnceBox<std::time::Instant> = OnceBox::new();
    micros(START.get_or_init(|| Box::new(std::time::Instant::now())).elapsed())
}

/// Returns the time at which a lease that was requested at `sent` ends for its holder.
///
/// It is a thousandth of the lease earlier than on the store's clock, because the two clocks may drift apart.
#[must_use]
pub fn lease_deadline(sent: Timestamp, lease: Duration) -> Timestamp {
    sent + lease.saturating_sub(lease / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
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
