//! The arithmetic of the three algorithms: what was used, and when there will be room.

use super::quota::{Algorithm, Quota};
use crate::clock::Timestamp;
use std::time::Duration;

/// The use up to some time, which may lie in the future.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum Meter {
    /// `used` tokens in the interval that began at `start`.
    Window { start: Timestamp, used: u64 },
    /// At `at`, everything is free again after another `debt` microseconds.
    Gcra {
        at: Timestamp,
        #[cfg_attr(feature = "_cas", serde(deserialize_with = "finite"))]
        debt: f64,
    },
}

#[cfg(feature = "_cas")]
fn finite<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let debt: f64 = serde::Deserialize::deserialize(deserializer)?;
    if debt.is_finite() && debt >= 0.0 {
        Ok(debt)
    } else {
        Err(serde::de::Error::custom("the debt is no time"))
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::Window { start: Timestamp::default(), used: 0 }
    }
}

/// A quota with values derived from it, computed once. Times are in microseconds.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    feature = "_cas",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "Quota", into = "Quota")
)]
pub(super) struct Rate {
    pub(super) quota: Quota,
    size: u64,
    interval: u64,
    /// How long a window is kept. A bucket keeps the times of its refills for one idle interval. A window starts with
    /// its first request.
    kept: u64,
    /// The time that one token takes; at size 0 as if it were one per interval.
    emission: f64,
    /// The time that the greatest burst takes, and the tolerance for rounding.
    burst: f64,
    slack: f64,
}

/// Admits nothing.
impl Default for Rate {
    fn default() -> Self {
        Self { quota: Quota::default(), size: 0, interval: 0, kept: 0, emission: 0.0, burst: 0.0, slack: 0.0 }
    }
}

#[cfg(feature = "_cas")]
impl From<Rate> for Quota {
    fn from(rate: Rate) -> Self {
        rate.quota
    }
}

impl From<Quota> for Rate {
    fn from(quota: Quota) -> Self {
        let (size, interval) = (quota.size(), quota.interval);
        let beats = if quota.algorithm == Algorithm::TokenBucket { 2 } else { 1 };
        #[expect(
            clippy::cast_precision_loss,
            reason = "microseconds do not matter in intervals of centuries"
        )]
        let emission = interval as f64 / real(quota.count.max(1));
        let (burst, slack) = (real(size) * emission, emission * TOLERANCE);
        Self { quota, size, interval, kept: interval.saturating_mul(beats), emission, burst, slack }
    }
}

impl Rate {
    /// Returns the number of tokens that take this time. None do if there is no interval.
    fn tokens(&self, debt: f64) -> f64 {
        if self.emission > 0.0 { debt / self.emission } else { 0.0 }
    }
}

impl Meter {
    /// Returns when `tokens` more are available. Returns `NEVER` if the size does not allow it.
    pub(super) fn available_at(self, tokens: u64, rate: &Rate, now: Timestamp) -> Timestamp {
        if tokens > rate.size {
            return Timestamp::NEVER;
        }
        match self.at(rate, now) {
            Self::Window { start, used } => {
                let fits = tokens <= rate.size.saturating_sub(used);
                if fits { start.max(now) } else { later(start, rate.interval) }
            }
            Self::Gcra { at, debt } => {
                let excess = debt + real(tokens) * rate.emission - rate.burst;
                if excess <= rate.slack { at } else { later(at, ceiling(excess)) }
            }
        }
    }

    /// Returns the meter after `tokens` were taken at `at`, when they are available.
    pub(super) fn after(self, tokens: u64, at: Timestamp, rate: &Rate) -> Self {
        match self.at(rate, at) {
            _ if at == Timestamp::NEVER => self,
            Self::Window { start, used } if used.saturating_add(tokens) <= rate.size => {
                Self::Window { start, used: used + tokens }
            }
            Self::Window { .. } => Self::Window { start: at, used: tokens },
            Self::Gcra { at, debt } => {
                Self::Gcra { at, debt: (debt + real(tokens) * rate.emission).min(f64::MAX) }
            }
        }
    }

    /// Returns the number of free tokens at `now`.
    pub(super) fn remaining(self, rate: &Rate, now: Timestamp) -> u64 {
        match self.at(rate, now) {
            Self::Window { start, .. } if start > now => 0,
            Self::Window { used, .. } => rate.size.saturating_sub(used),
            Self::Gcra { at, .. } if at > now => 0,
            Self::Gcra { debt, .. } => {
                let free = (rate.burst - debt + rate.slack) / rate.emission;
                if rate.size == 0 { 0 } else { whole(free) }
            }
        }
    }

    /// Returns the time until everything is free again.
    pub(super) fn reset_after(self, rate: &Rate, now: Timestamp) -> Duration {
        match self.at(rate, now) {
            Self::Window { used: 0, .. } => Duration::ZERO,
            Self::Window { start, .. } => later(start, rate.interval).since(now),
            Self::Gcra { at, debt } => later(at, ceiling(debt)).since(now),
        }
    }

    /// Returns when nothing has to be remembered any more.
    pub(super) fn idle_from(self, rate: &Rate) -> Timestamp {
        match self {
            Self::Window { start, .. } => later(start, rate.kept),
            Self::Gcra { at, debt } => later(at, ceiling(debt)),
        }
    }

    /// Returns the same use under another quota. The elapsed part of an interval or of a token is kept, so that callers
    /// that alternate between algorithms do not restart it each time: converting there and back gives the same meter.
    pub(super) fn under(self, old: &Rate, new: &Rate, now: Timestamp) -> Self {
        if self == Self::default() || self.idle_from(old) <= now {
            return Self::default();
        }
        match (self.at(old, now), new.quota.algorithm) {
            (Self::Window { start, used }, Algorithm::Gcra) => {
                Self::Gcra { at: start, debt: real(used) * new.emission }
            }
            (Self::Gcra { debt, .. }, Algorithm::Gcra) => {
                Self::Gcra { at: now, debt: (old.tokens(debt) * new.emission).min(f64::MAX) }
            }
            (Self::Gcra { debt, .. }, _) => {
                let used = old.tokens(debt);
                let passed = whole((used.ceil() - used) * old.emission);
                Self::Window { start: now - Duration::from_micros(passed), used: whole(used.ceil()) }
            }
            (window @ Self::Window { .. }, _) => window,
        }
    }

    /// Returns the meter at `now` if it lies in the future, which means that the clock was set back.
    pub(super) fn set_back(self, now: Timestamp) -> Option<Self> {
        match self {
            Self::Window { start, used } if start > now => Some(Self::Window { start: now, used }),
            Self::Gcra { at, debt } if at > now => Some(Self::Gcra { at: now, debt }),
            _ => None,
        }
    }

    /// Returns the meter advanced to `now`, or unchanged if it lies in the future.
    pub(super) fn at(self, rate: &Rate, now: Timestamp) -> Self {
        match self {
            Self::Window { .. } if rate.quota.algorithm == Algorithm::Gcra => {
                Self::Gcra { at: now, debt: 0.0 }
            }
            Self::Window { start, .. } if now < later(start, rate.interval) => self,
            Self::Window { start, .. } if now < later(start, rate.kept) => {
                Self::Window { start: later(start, rate.interval), used: 0 }
            }
            Self::Window { .. } => Self::Window { start: now, used: 0 },
            Self::Gcra { at, debt } if at < now => {
                Self::Gcra { at: now, debt: (debt - real(now.as_micros() - at.as_micros())).max(0.0) }
            }
            Self::Gcra { .. } => self,
        }
    }
}

/// The fraction of a token that rounding may add.
const TOLERANCE: f64 = 1e-3;

/// Converts by way of a signed number, which is faster. Numbers that were read may be any.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "below 2^53 unless they were read"
)]
fn real(number: u64) -> f64 {
    number.min(i64::MAX as u64) as i64 as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped: `as` saturates")]
fn whole(number: f64) -> u64 {
    number.max(0.0) as i64 as u64
}

/// Rounds up.
fn ceiling(number: f64) -> u64 {
    let below = whole(number);
    below.saturating_add(u64::from(real(below) < number))
}

fn later(time: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_add(micros).min(LATEST))
}

/// In the year 2255. Later times are clamped to it, because every store counts exactly up to here.
const LATEST: u64 = 1 << 53;
