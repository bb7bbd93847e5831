//! A coarse clock for callers that read the time so often that reading the kernel's clock would dominate their cost.

use super::{Timestamp, micros};
use crate::process::PerProcess;
use once_cell::race::OnceBox;
use quanta::Clock;
use std::{cell::Cell, thread, time::Duration};

/// The time for which the counter is trusted.
const TRUSTED: Duration = Duration::from_millis(1);

/// The largest distance between two clock readings that count as simultaneous.
const TOGETHER: Duration = Duration::from_micros(1);

/// Empty until the frequency of the counter has been measured.
static CLOCK: OnceBox<Clock> = OnceBox::new();

thread_local! {
    /// A reading of the counter, and the time of that reading.
    static ANCHOR: Cell<Option<(u64, Timestamp)>> = const { Cell::new(None) };
}

pub(super) fn now() -> Timestamp {
    let Some(clock) = CLOCK.get() else {
        prepare();
        return Timestamp::now();
    };
    let count = clock.raw();
    advance(clock, count).unwrap_or_else(|| {
        let now = Timestamp::now();
        // The thread may have been paused between the two readings.
        if clock.delta(count, clock.raw()) < TOGETHER {
            ANCHOR.set(Some((count, now)));
        }
        now
    })
}

/// Returns the time at `count`, or `None` if the counter went back or the anchor is too old.
fn advance(clock: &Clock, count: u64) -> Option<Timestamp> {
    let (then, time) = ANCHOR.get().filter(|(then, _)| *then <= count)?;
    let passed = Duration::from_nanos(clock.delta_as_nanos(then, count));
    (passed < TRUSTED).then(|| Timestamp::from_micros(time.as_micros() + micros(passed)))
}

/// Measures the counter on a thread of its own, because that takes 1 ms, on some machines 200 ms. If the thread cannot
/// be started, every reading asks the kernel.
fn prepare() {
    static BEGUN: PerProcess<()> = PerProcess::new();
    BEGUN.cell().get_or_init(|| {
        let measure = || drop(CLOCK.set(Box::new(Clock::new())));
        drop(thread::Builder::new().name("locker-clock".into()).spawn(measure));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_harness::eventually;

    #[test]
    fn coarse_clock_agrees_with_the_kernel() {
        eventually("the counter is measured", || {
            now();
            CLOCK.get()
        });
        for _ in 0..100_000 {
            let before = Timestamp::now();
            let coarse = now();
            let after = Timestamp::now();
            let little = 2 * TOGETHER + Duration::from_micros(1);
            assert!(before <= coarse + little && coarse <= after + little, "{before} {coarse} {after}");
        }
    }

    #[test]
    fn jump_of_the_counter_is_detected() {
        let clock = Clock::new();
        let (count, time) = (clock.raw(), Timestamp::from_micros(7));
        ANCHOR.set(Some((count, time)));
        assert_eq!(advance(&clock, count), Some(time));
        assert_eq!(advance(&clock, count - 1), None);
        assert_eq!(advance(&clock, count + 1_000_000_000_000), None);
    }
}
