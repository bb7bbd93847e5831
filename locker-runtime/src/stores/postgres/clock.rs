//! The bounds of the server's clock, from samples of it.

use crate::{clock::Timestamp, stores::cas::Time};
use std::{collections::VecDeque, time::Duration};

/// How long a sample counts, unless it is the last one.
const KEPT: Duration = Duration::from_secs(10);

/// The samples of so long are kept as one: there is one from each answer of the server.
const MERGED: Duration = Duration::from_secs(1);

/// Two clocks may drift apart by one part in this many.
const DRIFT: u64 = 2_000;

/// The samples of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Clock(VecDeque<Sample>);

/// How far the server's clock is ahead of this process's, in microseconds, by one or more answers.
#[derive(Clone, Copy, Debug)]
struct Sample {
    first: Timestamp,
    last: Timestamp,
    least: i64,
    most: i64,
    /// The time that the quickest answer took.
    quickest: i64,
}

impl Clock {
    /// Adds a sample: between `sent` and `heard`, the server's clock was `time`.
    pub(super) fn add(&mut self, sent: Timestamp, time: i64, heard: Timestamp) {
        // Each clock has shown its number for up to a microsecond.
        let (least, most) = (time - micros(heard) - 1, time - micros(sent) + 1);
        let sample = Sample { first: heard, last: heard, least, most, quickest: most - least };
        self.0.retain(|sample| heard.since(sample.last) <= KEPT);
        match self.bounds(heard) {
            // One of the clocks was set, or this one stood still.
            Some(known) if known.0 > most || known.1 < least => self.0 = VecDeque::from([sample]),
            _ => self.keep(sample),
        }
    }

    fn keep(&mut self, sample: Sample) {
        match self.0.back_mut() {
            Some(before) if sample.last.since(before.first) < MERGED => before.merge(sample),
            _ => self.0.push_back(sample),
        }
    }

    /// Returns the present time of the server's clock.
    pub(super) fn time(&self, now: Timestamp) -> Time {
        let Some((least, most)) = self.bounds(now) else { return Time::unknown() };
        let lower = u64::try_from(micros(now).saturating_add(least)).unwrap_or(0);
        let spread = u64::try_from(most - least).unwrap_or(0) + 1;
        Time::served(Timestamp::from_micros(lower), Duration::from_micros(spread))
    }

    /// Returns the time that the network needs for a question and its answer.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let quickest = self.0.iter().map(|sample| sample.quickest).min()?;
        Some(Duration::from_micros(u64::try_from(quickest).unwrap_or(0)))
    }

    fn bounds(&self, now: Timestamp) -> Option<(i64, i64)> {
        let bounds = self.0.iter().map(|sample| sample.bounds(now));
        bounds.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)))
    }
}

impl Sample {
    fn bounds(&self, now: Timestamp) -> (i64, i64) {
        let age = u64::try_from(now.since(self.last).as_micros()).unwrap_or(u64::MAX);
        let drift = i64::try_from(age / DRIFT).unwrap_or(i64::MAX);
        (self.least.saturating_sub(drift), self.most.saturating_add(drift))
    }

    /// Takes over a later sample that does not contradict this one.
    fn merge(&mut self, later: Self) {
        let (least, most) = self.bounds(later.last);
        (self.least, self.most) = (least.max(later.least), most.min(later.most));
        (self.last, self.quickest) = (self.last.max(later.last), self.quickest.min(later.quickest));
    }
}

fn micros(time: Timestamp) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn served(clock: &Clock, now: u64) -> (u64, u64) {
        let Time { now, spread, .. } = clock.time(at(now));
        (now.as_micros(), u64::try_from(spread.as_micros()).unwrap())
    }

    #[test]
    fn samples_bound_the_clock_together() {
        let mut clock = Clock::default();
        assert_eq!(clock.time(at(5)), Time::unknown());
        // The server is 1,000 ahead. One answer took long on its way here, the other request on its way there.
        clock.add(at(10_000), 11_010, at(10_400));
        clock.add(at(10_500), 11_890, at(10_900));
        let (now, spread) = served(&clock, 10_900);
        assert!(now <= 11_900 && 11_900 <= now + spread, "{now} {spread}");
        assert!(now >= 11_888 && spread < 30, "{now} {spread}");
    }

    /// What is not known about an old sample is no time of the network.
    #[test]
    fn round_trip_is_that_of_the_quickest_sample() {
        let mut clock = Clock::default();
        assert_eq!(clock.round_trip(), None);
        clock.add(at(10_000), 11_010, at(10_400));
        clock.add(at(5_010_000), 5_011_010, at(5_010_200));
        assert!(served(&clock, 9_000_000).1 > 2_000);
        assert_eq!(clock.round_trip(), Some(Duration::from_micros(202)));
    }

    /// Each answer of the server brings one.
    #[test]
    fn samples_of_a_second_are_kept_as_one() {
        let mut clock = Clock::default();
        for at_micros in (0..3_000_000).step_by(100) {
            // The server is 1,000 ahead, and each answer takes 50 to 149.
            let took = 50 + at_micros / 100 % 100;
            clock.add(
                at(10_000 + at_micros),
                i64::try_from(11_025 + at_micros).unwrap(),
                at(10_000 + at_micros + took),
            );
        }
        assert!(clock.0.len() <= 4, "{}", clock.0.len());
        let (now, spread) = served(&clock, 3_010_000);
        assert!(now <= 3_011_000 && 3_011_000 <= now + spread && spread < 60, "{now} {spread}");
        assert_eq!(clock.round_trip(), Some(Duration::from_micros(52)));
    }

    #[test]
    fn clock_that_was_set_drops_old_samples() {
        let mut clock = Clock::default();
        clock.add(at(10_000), 11_000, at(10_100));
        clock.add(at(20_000), 5_000, at(20_100));
        let (now, spread) = served(&clock, 20_100);
        assert!((4_990..=5_000).contains(&now) && spread < 110, "{now} {spread}");
    }

    #[test]
    fn old_sample_is_less_exact_and_kept_if_it_is_the_last() {
        let mut clock = Clock::default();
        clock.add(at(10_000), 11_000, at(10_100));
        let (now, spread) = served(&clock, 60_010_100);
        assert!(now <= 60_011_000 - 30_000 && now + spread >= 60_011_100 + 30_000, "{now} {spread}");
        clock.add(at(70_000_000), 70_001_050, at(70_000_100));
        assert!(served(&clock, 70_000_100).1 < 110);
    }
}
