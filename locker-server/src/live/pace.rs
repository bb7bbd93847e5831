//! How much of the time the overview may take.

use super::INTERVAL;
use std::time::{Duration, Instant};

/// The rest after work, as a multiple of the time that the work took.
const REST_FACTOR: u32 = 19;

/// The longest rest after a pass that failed: it may have waited for an outage to end.
const MOST_AFTER_ERROR: Duration = Duration::from_secs(5);

/// The rest that is due.
#[derive(Debug, Default)]
pub(super) struct Pace {
    due: Duration,
    pinged: Option<Instant>,
}

impl Pace {
    /// Counts the work since `start`.
    pub(super) fn worked(&mut self, start: Instant) {
        self.due += start.elapsed() * REST_FACTOR;
    }

    /// Replaces what is due after a pass that failed after this time.
    pub(super) fn waited_for_the_store(&mut self, took: Duration) {
        self.due = took.min(MOST_AFTER_ERROR);
    }

    pub(super) fn at_least(&mut self, rest: Duration) {
        self.due = self.due.max(rest);
    }

    /// Returns the next part of the rest, of a second at most.
    pub(super) fn next_rest(&mut self) -> Option<Duration> {
        let rest = self.due.min(INTERVAL);
        self.due -= rest;
        Some(rest).filter(|rest| !rest.is_zero())
    }

    /// Counts a rest that was not one of [`next_rest`](Self::next_rest).
    pub(super) fn rested(&mut self, rest: Duration) {
        self.due = self.due.saturating_sub(rest);
    }

    /// Returns how long the rest is that is due.
    pub(super) fn due(&self) -> Duration {
        self.due
    }

    /// Returns `true` once a second.
    pub(super) fn may_ping(&mut self) -> bool {
        let may = self.pinged.is_none_or(|pinged| pinged.elapsed() >= INTERVAL);
        if may {
            self.pinged = Some(Instant::now());
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_nineteen_times_the_work() {
        let mut pace = Pace::default();
        let work = Duration::from_millis(100);
        pace.worked(Instant::now().checked_sub(work).unwrap());
        let rests: Duration =
            std::iter::from_fn(|| pace.next_rest().inspect(|rest| assert!(*rest <= INTERVAL))).sum();
        assert!(rests >= 19 * work, "{rests:?}");
        assert_eq!(pace.next_rest(), None);
        pace.at_least(INTERVAL);
        assert_eq!((pace.next_rest(), pace.next_rest()), (Some(INTERVAL), None));
    }

    #[test]
    fn outage_does_not_stretch_the_rest() {
        let mut pace = Pace::default();
        pace.worked(Instant::now().checked_sub(Duration::from_mins(1)).unwrap());
        pace.waited_for_the_store(Duration::from_mins(1));
        let rests: Duration = std::iter::from_fn(|| pace.next_rest()).sum();
        assert_eq!(rests, MOST_AFTER_ERROR);
    }
}
