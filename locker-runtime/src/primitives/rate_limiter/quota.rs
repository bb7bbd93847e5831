//! How much is let through: the settings of a rate limiter.

use crate::{Error, ErrorKind, Result, config::between};
use std::time::Duration;

/// The rule by which a limiter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
/// use {locker_runtime::Quota, std::time::Duration};
/// let five_per_slot = Quota::fixed_window(5, Duration::from_millis(800));
/// let hundred_a_second = Quota::gcra(100, Duration::from_secs(1)).burst(10);
/// assert_eq!((five_per_slot.size(), hundred_a_second.size()), (5, 10));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quota {
    pub(crate) algorithm: Algorithm,
    pub(crate) count: u64,
    pub(crate) interval: Duration,
    pub(crate) burst: Option<u64>,
}

impl Quota {
    /// `n` in every slot of length `per`; a slot starts with the first request after the last one's end.
    ///
    /// Up to 2 x `n` are let through in a time of length `per` that spans the end of a slot.
    #[must_use]
    pub const fn fixed_window(n: u64, per: Duration) -> Self {
        Self { algorithm: Algorithm::FixedWindow, count: n, interval: per, burst: None }
    }

    /// A bucket of `n` tokens that is filled up every `interval`, counted from the first request. One that nobody
    /// used for a whole interval starts anew with the next request.
    ///
    /// Up to 2 x `n` are let through in a time of length `interval` around a refill.
    #[must_use]
    pub const fn token_bucket(n: u64, interval: Duration) -> Self {
        Self { algorithm: Algorithm::TokenBucket, count: n, interval, burst: None }
    }

    /// The generic cell rate algorithm (ITU-T I.371): `n` in `per`, evenly, with up to `burst` at once (default
    /// `n`).
    ///
    /// At most `burst + n` are let through in any time of length `per`.
    #[must_use]
    pub const fn gcra(n: u64, per: Duration) -> Self {
        Self { algorithm: Algorithm::Gcra, count: n, interval: per, burst: None }
    }

    /// How many may come at once: [`gcra`](Self::gcra) only, at least 1. Default: its `n`.
    #[must_use]
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = Some(burst);
        self
    }

    /// How many can be taken at once at most.
    #[must_use]
    pub fn size(&self) -> u64 {
        if self.count == 0 { 0 } else { self.burst.unwrap_or(self.count) }
    }

    /// The interval that the count is meant for.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Refuses what cannot be meant, by name.
    pub(crate) fn check(&self, tokens: u64) -> Result<()> {
        let misused = |message: String| Err(Error::new(ErrorKind::Misused, message));
        between("interval", self.interval, SHORTEST)?;
        if self.count > MAX_COUNT {
            return misused(format!("size {} is too large: give at most {MAX_COUNT}", self.count));
        }
        match self.burst {
            Some(_) if self.algorithm != Algorithm::Gcra => {
                return misused("burst belongs to gcra: the other algorithms have none".into());
            }
            Some(burst) if burst == 0 || burst > MAX_COUNT => {
                return misused(format!("burst {burst} is out of range: give 1 to {MAX_COUNT}"));
            }
            _ => {}
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

const SHORTEST: Duration = Duration::from_micros(1);

/// What every store can count to exactly.
const MAX_COUNT: u64 = (1 << 53) - 1;
