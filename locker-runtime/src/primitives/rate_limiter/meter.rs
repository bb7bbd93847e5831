//! What was used, and when there will be room: the arithmetic of the three algorithms.

use super::{Algorithm, Quota};
use crate::clock::Timestamp;
use std::time::Duration;

/// What was used up to some time, which may lie ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meter {
    /// `used` in the interval that began at `start`.
    Window { start: Timestamp, used: u64 },
    /// At `at`, it took `debt` microseconds until everything was free again.
    Gcra { at: Timestamp, debt: f64 },
}

impl Default for Meter {
    fn default() -> Self {
        Self::Window { start: Timestamp::default(), used: 0 }
    }
}

impl Meter {
    /// When `tokens` more can be had; `NEVER` when the size does not allow it.
    pub(super) fn turn(self, tokens: u64, quota: &Quota, now: Timestamp) -> Timestamp {
        if tokens > quota.size() {
            return Timestamp::NEVER;
        }
        match self.at(quota, now) {
            Self::Window { start, used } => {
                let fits = tokens <= quota.size().saturating_sub(used);
                if fits { start.max(now) } else { start + quota.interval() }
            }
            Self::Gcra { at, debt } => {
                let emission = emission(quota);
                let excess = debt + real(tokens) * emission - real(quota.size()) * emission;
                if excess <= emission * TOLERANCE { at } else { at + micros(excess.ceil()) }
            }
        }
    }

    /// The meter after `tokens` were taken at their turn `at`.
    pub(super) fn after(self, tokens: u64, at: Timestamp, quota: &Quota) -> Self {
        match self.at(quota, at) {
            _ if at == Timestamp::NEVER => self,
            Self::Window { start, used } if used + tokens <= quota.size() => {
                Self::Window { start, used: used + tokens }
            }
            Self::Window { .. } => Self::Window { start: at, used: tokens },
            Self::Gcra { at, debt } => Self::Gcra { at, debt: debt + real(tokens) * emission(quota) },
        }
    }

    /// How many tokens are free at `now`.
    pub(super) fn remaining(self, quota: &Quota, now: Timestamp) -> u64 {
        match self.at(quota, now) {
            Self::Window { start, .. } if start > now => 0,
            Self::Window { used, .. } => quota.size().saturating_sub(used),
            Self::Gcra { at, .. } if at > now => 0,
            Self::Gcra { debt, .. } => {
                let emission = emission(quota);
                let free = (real(quota.size()) * emission - debt + emission * TOLERANCE) / emission;
                if quota.size() == 0 { 0 } else { whole(free) }
            }
        }
    }

    /// When everything is free again.
    pub(super) fn reset_after(self, quota: &Quota, now: Timestamp) -> Duration {
        match self.at(quota, now) {
            Self::Window { used: 0, .. } => Duration::ZERO,
            Self::Window { start, .. } => (start + quota.interval()).since(now),
            Self::Gcra { at, debt } => (at + micros(debt.ceil())).since(now),
        }
    }

    /// From when on nothing is left that has to be remembered.
    pub(super) fn idle_from(self, quota: &Quota) -> Timestamp {
        match self {
            Self::Window { start, .. } => start + quota.interval() + alignment(quota),
            Self::Gcra { at, debt } => at + micros(debt.ceil()),
        }
    }

    /// The same use, counted by another quota.
    pub(super) fn under(self, old: &Quota, new: &Quota, now: Timestamp) -> Self {
        if self == Self::default() || self.idle_from(old) <= now {
            return Self::default();
        }
        match (self.at(old, now), new.algorithm) {
            (Self::Window { used, .. }, Algorithm::Gcra) => {
                Self::Gcra { at: now, debt: real(used) * emission(new) }
            }
            (Self::Gcra { debt, .. }, Algorithm::Gcra) => {
                let used = if old.count == 0 { 0.0 } else { debt / emission(old) };
                Self::Gcra { at: now, debt: used * emission(new) }
            }
            (Self::Gcra { debt, .. }, _) => {
                let used = if old.count == 0 { 0.0 } else { (debt / emission(old)).ceil() };
                Self::Window { start: now, used: whole(used) }
            }
            (window @ Self::Window { .. }, _) => window,
        }
    }

    /// The meter moved on to `now`; one that lies ahead stays.
    fn at(self, quota: &Quota, now: Timestamp) -> Self {
        match self {
            Self::Window { .. } if quota.algorithm == Algorithm::Gcra => Self::Gcra { at: now, debt: 0.0 },
            Self::Window { start, .. } if now < start + quota.interval() => self,
            Self::Window { start, .. } if now < start + quota.interval() + alignment(quota) => {
                Self::Window { start: start + quota.interval(), used: 0 }
            }
            Self::Window { .. } => Self::Window { start: now, used: 0 },
            Self::Gcra { at, debt } if at < now => {
                Self::Gcra { at: now, debt: (debt - real(micros_of(now.since(at)))).max(0.0) }
            }
            Self::Gcra { .. } => self,
        }
    }
}

/// How much of a token rounding may give away.
const TOLERANCE: f64 = 1e-3;

/// A bucket keeps the beat of its refills for one idle interval, a window starts with its first request.
fn alignment(quota: &Quota) -> Duration {
    if quota.algorithm == Algorithm::TokenBucket { quota.interval() } else { Duration::ZERO }
}

/// The time one token takes, in microseconds; without any tokens the time of one per interval.
fn emission(quota: &Quota) -> f64 {
    real(quota.interval) / real(quota.count.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "counts and times stay below 2^53")]
fn real(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped: `as` saturates")]
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

fn micros(number: f64) -> Duration {
    Duration::from_micros(whole(number))
}

fn micros_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
