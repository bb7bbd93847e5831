//! What is known about the backend from its latest answers.

use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    sync::{Mutex, lock},
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The least expected round trip: machines may be busy.
const LEAST_RTT: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Health {
    /// When the latest answer came, in microseconds.
    answered_at: AtomicU64,
    /// The smoothed round trip, in microseconds. 0 before the first one.
    rtt: AtomicU64,
    /// Why the latest call failed, if it did.
    outage: Mutex<Option<Error>>,
}

impl Health {
    /// Records the result of a call that was sent at `sent`.
    pub(super) fn record<T>(&self, sent: Timestamp, result: &Result<T>) {
        let now = Timestamp::now();
        match result {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                *lock(&self.outage) = Some(error.clone());
            }
            _ => {
                let took = micros(now.since(sent)).max(1);
                // The first one counts whole: otherwise a distant store would be given up until many have come.
                let smoothed = match self.rtt.load(Ordering::Relaxed) {
                    0 => took,
                    before => (7 * before + took).div_ceil(8),
                };
                self.rtt.store(smoothed, Ordering::Relaxed);
                self.answered_at.fetch_max(now.as_micros(), Ordering::Relaxed);
                let before = lock(&self.outage).take();
                drop(before);
            }
        }
    }

    pub(super) fn outage(&self) -> Option<Error> {
        lock(&self.outage).clone()
    }

    pub(super) fn has_answered_since(&self, time: Timestamp) -> bool {
        self.answered_at.load(Ordering::Relaxed) >= time.as_micros()
    }

    /// Returns how long an answer may take.
    pub(super) fn expected_rtt(&self) -> Duration {
        LEAST_RTT.max(4 * Duration::from_micros(self.rtt.load(Ordering::Relaxed)))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distant_store_is_known_after_one_answer() {
        let health = Health::default();
        assert_eq!(health.expected_rtt(), LEAST_RTT);
        let now = Timestamp::now();
        health.record(now - Duration::from_millis(60), &Ok(()));
        assert!(health.expected_rtt() >= Duration::from_millis(240), "{:?}", health.expected_rtt());
    }
    /// Only a call without an answer is an outage, and any answer ends it.
    #[test]
    fn outage_lasts_until_an_answer() {
        let (health, now) = (Health::default(), Timestamp::now());
        let failed = |kind| Err::<(), _>(Error::new(kind, "a test's error"));
        health.record(now, &failed(ErrorKind::Unavailable));
        assert!(health.outage().is_some() && !health.has_answered_since(now));
        health.record(now, &failed(ErrorKind::Conflict));
        assert!(health.outage().is_none() && health.has_answered_since(now));
        health.record(now, &failed(ErrorKind::Unavailable));
        assert!(health.outage().is_some() && health.has_answered_since(now), "it has answered before");
        assert!(!health.has_answered_since(Timestamp::now() + Duration::from_secs(60)));
    }

    #[test]
    fn round_trips_are_smoothed() {
        let (health, second) = (Health::default(), Duration::from_secs(1));
        for _ in 0..20 {
            health.record(Timestamp::now() - second, &Ok(()));
        }
        let slow = health.expected_rtt();
        assert!((4 * second..5 * second).contains(&slow), "{slow:?}");
        health.record(Timestamp::now(), &Ok(()));
        let after = health.expected_rtt();
        assert!((slow * 3 / 4..slow).contains(&after), "one quick answer counts an eighth: {after:?}");
    }
}
