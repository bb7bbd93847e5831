//! How much is let through: the settings of a rate limiter.

use crate::{
    error::{Error, ErrorKind, Result},
    ranges::{LONGEST, MAX_COUNT, check_range},
};
use std::time::Duration;

/// The rule by which a limiter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Algorithm {
    /// A slot starts with its first request and lets `size` through.
    #[default]
    FixedWindow,
    /// Every interval fills the bucket up to `size`, whatever was left.
    TokenBucket,
    /// The generic cell rate algorithm: one every `interval / size`, up to `burst` at once.
    Gcra,
}

/// The settings of a rate limiter. They travel with every request: what the last caller gave holds.
///
/// ```
/// # use locker_runtime as locker;
/// use {locker::Quota, std::time::Duration};
/// let five_per_slot = Quota::fixed_window(5, Duration::from_millis(800));
/// let hundred_a_second = Quota::gcra(100, Duration::from_secs(1)).burst(10);
/// assert_eq!((five_per_slot.size(), hundred_a_second.size()), (5, 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quota {
    pub(crate) algorithm: Algorithm,
    pub(crate) count: u64,
    /// In microseconds.
    pub(crate) interval: u64,
    /// [`NO_BURST`] when none is given.
    pub(crate) burst: u64,
}

/// Nothing is let through.
impl Default for Quota {
    fn default() -> Self {
        Self::new(Algorithm::FixedWindow, 0, Duration::ZERO)
    }
}

impl Quota {
    /// `n` in every slot of length `per`; a slot starts with the first request after the last one's end.
    ///
    /// Up to 2 x `n` are let through in a time of length `per` that spans the end of a slot.
    #[must_use]
    pub const fn fixed_window(n: u64, per: Duration) -> Self {
        Self::new(Algorithm::FixedWindow, n, per)
    }

    /// A bucket of `n` tokens that is filled up every `interval`, counted from the first request. One that nobody
    /// used for a whole interval starts anew with the next request.
    ///
    /// Up to 2 x `n` are let through in a time of length `interval` around a refill.
    #[must_use]
    pub const fn token_bucket(n: u64, interval: Duration) -> Self {
        Self::new(Algorithm::TokenBucket, n, interval)
    }

    /// The generic cell rate algorithm (ITU-T I.371): `n` in `per`, evenly, with up to `burst` at once (default
    /// `n`).
    ///
    /// At most `burst + n` are let through in any time of length `per`.
    #[must_use]
    pub const fn gcra(n: u64, per: Duration) -> Self {
        Self::new(Algorithm::Gcra, n, per)
    }

    /// How many may come at once: [`gcra`](Self::gcra) only, at least 1. Default: its `n`.
    #[must_use]
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = if burst == NO_BURST { NO_BURST - 1 } else { burst };
        self
    }

    /// How many can be taken at once at most.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self.burst {
            _ if self.count == 0 => 0,
            NO_BURST => self.count,
            burst => burst,
        }
    }

    /// The interval that the count is meant for.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_micros(self.interval)
    }

    /// How much longer it takes until this many tokens more are there, of a limit that is used up.
    pub(crate) fn time_of(&self, tokens: u64) -> Duration {
        if self.algorithm != Algorithm::Gcra {
            return Duration::ZERO;
        }
        let micros = (u128::from(tokens) * u128::from(self.interval)).div_ceil(u128::from(self.count.max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// How many are let through in the long run in how much time: as many as may come at once at least.
    #[cfg(feature = "tower")]
    pub(crate) fn per_window(&self) -> (u64, Duration) {
        let most = self.count.max(self.size());
        (most, if most == self.count { self.interval() } else { self.time_of(most) })
    }

    const fn new(algorithm: Algorithm, count: u64, interval: Duration) -> Self {
        let micros = interval.as_micros();
        #[expect(clippy::cast_possible_truncation, reason = "clamped before")]
        let interval = if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 };
        Self { algorithm, count, interval, burst: NO_BURST }
    }

    /// Refuses what cannot be meant, by name.
    pub(crate) fn check(&self, tokens: u64) -> Result<()> {
        let misused = |message: String| Err(Error::new(ErrorKind::Misused, message));
        if self.interval == 0 {
            return misused(format!("interval is too short: give at least {SHORTEST:?}"));
        }
        // Reading it as a duration takes longer than all the other checks.
        if self.interval > LONGEST_MICROS {
            check_range("interval", self.interval(), SHORTEST)?;
        }
        if self.count > MAX_COUNT {
            return misused(format!("size {} is too large: give at most {MAX_COUNT}", self.count));
        }
        match self.burst {
            NO_BURST => {}
            _ if self.algorithm != Algorithm::Gcra => {
                return misused("burst belongs to gcra: the other algorithms have none".into());
            }
            1..=MAX_COUNT => {}
            0 => return misused(format!("burst 0 is out of range: give 1 to {MAX_COUNT}")),
            _ => return misused(format!("burst is too large: give at most {MAX_COUNT}")),
        }
        match self.size() {
            _ if tokens == 0 => misused("tokens 0: give at least 1".into()),
            0 => Ok(()),
            size if tokens > size => {
                misused(format!("tokens {tokens} can never be had at once: at most {size}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whole seconds, so that nothing in between is too long.
const LONGEST_MICROS: u64 = LONGEST.as_secs() * 1_000_000;

pub(crate) const SHORTEST: Duration = Duration::from_micros(1);

pub(crate) const NO_BURST: u64 = u64::MAX;
