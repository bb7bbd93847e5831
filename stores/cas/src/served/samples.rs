//! The bounds of the server's clock, from samples of it.

use crate::time::Time;
use locker_core::clock::Timestamp;
use std::{collections::VecDeque, time::Duration};

/// How long a sample counts, unless it is the last one.
const KEPT: Duration = Duration::from_secs(10);

/// The samples of so long are kept as one: there is one from each answer of the server.
const MERGED: Duration = Duration::from_secs(1);

/// Two clocks may drift apart by one part in this many.
const DRIFT: u64 = 2_000;

/// The samples of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Samples(VecDeque<Sample>);

/// How far the server's clock is ahead of this process's, in microseconds, by one or more answers.
#[derive(Clone, Copy, Debug)]
struct Sample {
    first: Timestamp,
    last: Timestamp,
    least: Bound,
    most: Bound,
    /// The time that the quickest answer took.
    quickest: i64,
}

/// A bound, and since when it drifts.
#[derive(Clone, Copy, Debug)]
struct Bound {
    ahead: i64,
    at: Timestamp,
}

impl Samples {
    /// Adds a sample: between `sent` and `heard`, the server's clock was `time`.
    pub(super) fn add(&mut self, sent: Timestamp, time: i64, heard: Timestamp) {
        // Each clock has shown its number for up to a microsecond.
        let (least, most) = (time - micros(heard) - 1, time - micros(sent) + 1);
        let sample = Sample {
            first: heard,
            last: heard,
            least: Bound { ahead: least, at: heard },
            // The server may have read its clock as soon as it was asked.
            most: Bound { ahead: most, at: sent },
            quickest: most - least,
        };
        let (least, most) = sample.bounds(heard);
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
        let Self { least, most, .. } = self;
        (least.ahead.saturating_sub(least.drift(now)), most.ahead.saturating_add(most.drift(now)))
    }

    /// Takes over a later sample that does not contradict this one.
    fn merge(&mut self, later: Self) {
        self.last = self.last.max(later.last);
        self.quickest = self.quickest.min(later.quickest);
        let (present, new) = (self.bounds(self.last), later.bounds(self.last));
        if new.0 > present.0 {
            self.least = later.least;
        }
        if new.1 < present.1 {
            self.most = later.most;
        }
    }
}

impl Bound {
    /// Returns how much the clocks may have drifted apart since, rounded up.
    fn drift(&self, now: Timestamp) -> i64 {
        let age = u64::try_from(now.since(self.at).as_micros()).unwrap_or(u64::MAX);
        i64::try_from(age.div_ceil(DRIFT)).unwrap_or(i64::MAX)
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

    fn served(clock: &Samples, now: u64) -> (u64, u64) {
        let Time { now, spread, .. } = clock.time(at(now));
        (now.as_micros(), u64::try_from(spread.as_micros()).unwrap())
    }

    #[test]
    fn samples_bound_the_clock_together() {
        let mut clock = Samples::default();
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
        let mut clock = Samples::default();
        assert_eq!(clock.round_trip(), None);
        clock.add(at(10_000), 11_010, at(10_400));
        clock.add(at(5_010_000), 5_011_010, at(5_010_200));
        assert!(served(&clock, 9_000_000).1 > 2_000);
        assert_eq!(clock.round_trip(), Some(Duration::from_micros(202)));
    }

    /// Each answer of the server brings one.
    #[test]
    fn samples_of_a_second_are_kept_as_one() {
        let mut clock = Samples::default();
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
        let mut clock = Samples::default();
        clock.add(at(10_000), 11_000, at(10_100));
        clock.add(at(20_000), 5_000, at(20_100));
        let (now, spread) = served(&clock, 20_100);
        assert!((4_990..=5_000).contains(&now) && spread < 110, "{now} {spread}");
    }

    #[test]
    fn old_sample_is_less_exact_and_kept_if_it_is_the_last() {
        let mut clock = Samples::default();
        clock.add(at(10_000), 11_000, at(10_100));
        let (now, spread) = served(&clock, 60_010_100);
        assert!(now <= 60_011_000 - 30_000 && now + spread >= 60_011_100 + 30_000, "{now} {spread}");
        clock.add(at(70_000_000), 70_001_050, at(70_000_100));
        assert!(served(&clock, 70_000_100).1 < 110);
    }

    /// A merged sample forgot the drift: each merge came so early that it rounded to nothing.
    #[test]
    fn merged_samples_bound_a_faster_clock() {
        let (mut clock, mut worst) = (Samples::default(), 0);
        // The server's clock gains 500 parts per million. An answer each millisecond; only the first one is quick.
        let server = |local: u64| local + 1_000 + local * 500 / 1_000_000;
        for n in 0..990_u64 {
            let sent = 10_000_000 + n * 1_000;
            let way = if n == 0 { 20 } else { 450 };
            clock.add(at(sent), i64::try_from(server(sent + way)).unwrap(), at(sent + 2 * way));
            let now = sent + 2 * way;
            let (least, spread) = served(&clock, now);
            worst = worst.max(server(now).saturating_sub(least + spread));
        }
        assert_eq!(worst, 0, "the upper bound is too low by so many microseconds");
    }

    /// A sample counted from its answer, although the server may have read its clock long before.
    #[test]
    fn slow_answer_bounds_a_faster_clock() {
        let mut clock = Samples::default();
        // The server's clock gains 500 microseconds while its answer is under way for a second.
        clock.add(at(10_000_000), 10_001_000, at(11_000_000));
        let (least, spread) = served(&clock, 11_000_000);
        assert!(least + spread >= 11_001_500, "{least} {spread}");
    }
}
