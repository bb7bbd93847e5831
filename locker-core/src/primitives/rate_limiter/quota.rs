//! The settings of a rate limiter.

use crate::{
    error::Result,
    ranges::{LONGEST, MAX_COUNT, check_range, misused},
};
use std::time::Duration;

/// The algorithm of a rate limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(any(feature = "serde", feature = "_cas"), derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Algorithm {
    /// Admits `size` per window. A window starts with its first request.
    #[default]
    FixedWindow,
    /// Refills a bucket to `size` every interval.
    TokenBucket,
    /// The generic cell rate algorithm: admits one every `interval / size`, up to `burst` at once.
    Gcra,
}

impl Algorithm {
    /// Returns the letter by which scripts know the algorithm.
    #[doc(hidden)]
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::FixedWindow => 'w',
            Self::TokenBucket => 'b',
            Self::Gcra => 'g',
        }
    }
}

/// The settings of a rate limiter. Every request carries them, and the most recent ones apply to all callers.
///
/// A size or burst is at most 2^53 - 1, an interval 1 µs to 10 years. With size 0 nothing is admitted. The constructors
/// accept any value: a limiter whose quota is out of range returns `Misused` from each call.
///
/// ```
/// # use locker_core::primitives::rate_limiter as locker;
/// use {locker::Quota, std::time::Duration};
/// let five_per_window = Quota::fixed_window(5, Duration::from_millis(800));
/// let hundred_a_second = Quota::gcra(100, Duration::from_secs(1)).burst(10);
/// assert_eq!((five_per_window.size(), hundred_a_second.size()), (5, 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(feature = "serde", feature = "_cas"), derive(serde::Serialize, serde::Deserialize))]
pub struct Quota {
    /// The algorithm.
    #[doc(hidden)]
    pub algorithm: Algorithm,
    /// How many tokens an interval has.
    #[doc(hidden)]
    pub count: u64,
    /// In microseconds.
    #[doc(hidden)]
    pub interval: u64,
    /// [`NO_BURST`] if none is set.
    #[doc(hidden)]
    pub burst: u64,
}

/// The default has size 0 and no interval: a limiter with it admits nothing.
impl Default for Quota {
    fn default() -> Self {
        Self::new(Algorithm::FixedWindow, 0, Duration::ZERO)
    }
}

impl Quota {
    /// Returns a quota of `n` per window of length `per`. A window starts with the first request after the end of the
    /// last one.
    ///
    /// Up to 2 x `n` are admitted in a time of length `per` that spans the end of a window.
    #[must_use]
    pub const fn fixed_window(n: u64, per: Duration) -> Self {
        Self::new(Algorithm::FixedWindow, n, per)
    }

    /// Returns a quota of `n` tokens with a refill every `interval`, counted from the first request. After a whole
    /// interval without a request, the count starts again with the next request.
    ///
    /// Up to 2 x `n` are admitted in a time of length `interval` around a refill.
    #[must_use]
    pub const fn token_bucket(n: u64, interval: Duration) -> Self {
        Self::new(Algorithm::TokenBucket, n, interval)
    }

    /// Returns a quota of `n` in `per`, evenly spaced, with up to `burst` at once (default `n`). The generic cell rate
    /// algorithm of ITU-T I.371.
    ///
    /// At most `burst + n` are admitted in any time of length `per`.
    #[must_use]
    pub const fn gcra(n: u64, per: Duration) -> Self {
        Self::new(Algorithm::Gcra, n, per)
    }

    /// Sets how many are admitted at once: at least 1, only with [`gcra`](Self::gcra). Default: its `n`.
    #[must_use]
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = if burst == NO_BURST { NO_BURST - 1 } else { burst };
        self
    }

    /// Returns the greatest number of tokens that can be taken at once.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self.burst {
            _ if self.count == 0 => 0,
            NO_BURST => self.count,
            burst => burst,
        }
    }

    /// Returns the length of a window, the interval between refills, or the time for `n` of `gcra`.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_micros(self.interval)
    }

    /// Returns how much longer this many more tokens take once the limit is used up.
    #[doc(hidden)]
    #[must_use]
    pub fn time_of(&self, tokens: u64) -> Duration {
        if self.algorithm != Algorithm::Gcra {
            return Duration::ZERO;
        }
        let micros = (u128::from(tokens) * u128::from(self.interval)).div_ceil(u128::from(self.count.max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Returns the long-run rate as a count and its time. The count is at least the number admitted at once.
    #[doc(hidden)]
    #[cfg(feature = "tower")]
    #[must_use]
    pub fn per_window(&self) -> (u64, Duration) {
        let most = self.count.max(self.size());
        (most, if most == self.count { self.interval() } else { self.time_of(most) })
    }

    const fn new(algorithm: Algorithm, count: u64, interval: Duration) -> Self {
        let micros = interval.as_micros();
        #[expect(clippy::cast_possible_truncation, reason = "clamped before")]
        let interval = if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 };
        Self { algorithm, count, interval, burst: NO_BURST }
    }

    /// Rejects values out of range, naming the option.
    ///
    /// # Errors
    /// `Misused`.
    #[doc(hidden)]
    pub fn check(&self, tokens: u64) -> Result<()> {
        if self.interval == 0 {
            return misused(format!("interval is too short: give at least {SHORTEST:?}"));
        }
        // Converting it to a duration takes longer than all other checks.
        if self.interval > LONGEST_MICROS {
            check_range("interval", self.interval(), SHORTEST)?;
        }
        if self.count > MAX_COUNT {
            return misused(format!("size {} is too large: give at most {MAX_COUNT}", self.count));
        }
        match self.burst {
            NO_BURST => {}
            _ if self.algorithm != Algorithm::Gcra => {
                return misused("burst belongs to gcra: the other algorithms have none");
            }
            1..=MAX_COUNT => {}
            0 => return misused(format!("burst 0 is out of range: give 1 to {MAX_COUNT}")),
            _ => return misused(format!("burst is too large: give at most {MAX_COUNT}")),
        }
        match self.size() {
            _ if tokens == 0 => misused("tokens 0: give at least 1"),
            0 => Ok(()),
            size if tokens > size => {
                misused(format!("tokens {tokens} can never be had at once: at most {size}"))
            }
            _ => Ok(()),
        }
    }
}

/// In whole seconds, so that no interval up to it is too long.
const LONGEST_MICROS: u64 = LONGEST.as_secs() * 1_000_000;

/// The shortest interval.
pub const SHORTEST: Duration = Duration::from_micros(1);

/// The burst of a quota that sets none.
pub const NO_BURST: u64 = u64::MAX;
