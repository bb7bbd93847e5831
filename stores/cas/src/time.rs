//! The time of a step, and what a write must find at the store's clock for that time to count.

use locker_core::clock::Timestamp;
use std::{sync::Arc, time::Duration};

/// How far a `now` may go on without a tick.
pub(crate) const CAP: Duration = Duration::from_secs(1);

/// The time of a step, as one process knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// A lower bound of the present time: at no moment later than the shared clock.
    pub now: Timestamp,
    /// How much later the present time may be.
    pub spread: Duration,
    /// How long the clock has stood still in all, which counts for what goes on without any process.
    pub gaps: Duration,
    /// What a write must find for this to be its time.
    pub(crate) basis: Basis,
}

impl Time {
    /// The time of a clock that all processes can read.
    #[must_use]
    pub fn served(now: Timestamp, spread: Duration) -> Self {
        Self { now, spread, gaps: Duration::ZERO, basis: Basis::Served }
    }

    /// Returns the time and the spread for a step at a key that was last written at `stamp`, so that the time of the
    /// key does not go back. A stamp beyond the spread is that of a clock that was set back or made anew.
    pub(super) fn at_stamp(&self, stamp: Timestamp, counts_gaps: bool) -> (Timestamp, Duration) {
        let now = self.now + if counts_gaps { self.gaps } else { Duration::ZERO };
        let latest = now + self.spread;
        let now = now.max(stamp.min(latest));
        (now, latest.since(now))
    }

    /// Returns the time of day at `now` at a key, if the clock of this process shows `local`. A clock that stands still
    /// without processes is behind by the gaps that it does not know of.
    pub(super) fn wall(&self, now: Timestamp, local: Timestamp) -> Timestamp {
        match self.basis {
            Basis::Served => now,
            Basis::Tick { .. } | Basis::Life(_) => now.max(self.now + self.gaps).max(local),
        }
    }

    /// Returns whether it is later than `latest`, the latest that it could be `passed` ago on the clock of this
    /// process: that clock stood still meanwhile, or the shared one was set.
    pub(super) fn is_beyond(&self, latest: Timestamp, passed: Duration) -> bool {
        // Two clocks may drift apart, and each has shown its number for up to a microsecond.
        self.basis == Basis::Served && self.now > latest + passed + passed / 1000 + Duration::from_micros(2)
    }

    /// A time of which nothing is known.
    #[must_use]
    pub fn unknown() -> Self {
        Self::served(Timestamp::default(), Duration::MAX)
    }
}

/// What a write must find at the clock of a store, for the time of its step to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Nothing: the time is that of a clock that goes by itself.
    Served,
    /// This tick, in this life of the clock.
    Tick {
        /// The life of the clock.
        life: i64,
        /// The version of the tick.
        version: Arc<[u8]>,
    },
    /// Any tick of this life.
    Life(i64),
}

impl Basis {
    pub(super) fn life(&self) -> Option<i64> {
        match *self {
            Self::Served => None,
            Self::Tick { life, .. } | Self::Life(life) => Some(life),
        }
    }
}

/// The clock as a refused write has found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The life of the clock.
    pub life: i64,
    /// The [latest](super::ticked::Tick::latest) time that its next tick can show.
    pub latest: Timestamp,
    /// The local time before the request was sent.
    pub sent: Timestamp,
}

impl Found {
    /// Returns the time for the repetition of the write at the local time `local`: `time`, as of then, if the clock has
    /// begun another life since.
    pub(crate) fn time(&self, time: Time, local: Timestamp) -> Time {
        if time.basis.life() != Some(self.life) {
            return time;
        }
        let passed = local.since(self.sent);
        let end = self.latest + passed + passed / 1000 + Duration::from_micros(1);
        Time { spread: end.since(time.now), basis: Basis::Life(self.life), ..time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_beyond_what_it_could_be() {
        let (at, ms) = (|millis: u64| Timestamp::from_micros(millis * 1_000), Duration::from_millis);
        let time = Time::served(at(10_000), ms(5));
        assert!(!time.is_beyond(at(9_000), ms(1_000)) && !time.is_beyond(at(9_999), ms(1)));
        assert!(time.is_beyond(at(8_990), ms(1_000)));
        assert!(!time.is_beyond(at(8_999), ms(1_000)), "the clocks drift apart");
        let of_tick = Time { basis: Basis::Life(1), ..time };
        assert!(!of_tick.is_beyond(at(0), ms(0)), "the write has found the tick");
    }

    #[test]
    fn time_of_a_key_does_not_go_back() {
        let (at, seconds) = (|s: u64| Timestamp::from_micros(s * 1_000_000), Duration::from_secs);
        let time = Time { gaps: seconds(10), ..Time::served(at(100), seconds(3)) };
        assert_eq!(time.at_stamp(at(50), false), (at(100), seconds(3)));
        assert_eq!(time.at_stamp(at(50), true), (at(110), seconds(3)));
        assert_eq!(time.at_stamp(at(102), false), (at(102), seconds(1)), "less is unknown");
        assert_eq!(time.at_stamp(at(200), false), (at(103), seconds(0)), "by a clock that was set back");
    }

    #[test]
    fn repetition_counts_from_the_refused_request() {
        let at = |millis: u64| Timestamp::from_micros(millis * 1_000);
        let of_tick = |life| Time {
            now: at(10_100),
            spread: Duration::from_millis(900),
            gaps: Duration::ZERO,
            basis: Basis::Tick { life, version: [7].into() },
        };
        let found = Found { life: 1, latest: at(11_000), sent: at(400) };
        let time = found.time(of_tick(1), at(600));
        assert_eq!(time.now + time.spread, at(11_200) + Duration::from_micros(200 + 1));
        assert_eq!((time.now, time.basis), (at(10_100), Basis::Life(1)));
        assert_eq!(found.time(of_tick(2), at(600)), of_tick(2), "another life");
    }
}
