//! The time for those who ask for it so often that asking the kernel is a good part of what they cost.

use super::{Timestamp, micros};
use quanta::Clock;
use std::{
    cell::Cell,
    sync::{Once, OnceLock},
    thread,
    time::Duration,
};

/// How long the counter is trusted.
const TRUSTED: Duration = Duration::from_millis(1);

/// Two looks at clocks that are no further apart count as one.
const TOGETHER: Duration = Duration::from_micros(1);

/// Empty until it is known how fast the processor counts.
static CLOCK: OnceLock<Clock> = OnceLock::new();

thread_local! {
    /// What the counter said, and what time it was then.
    static ANCHOR: Cell<Option<(u64, Timestamp)>> = const { Cell::new(None) };
}

pub(super) fn now() -> Timestamp {
    let Some(clock) = CLOCK.get() else {
        prepare();
        return Timestamp::now();
    };
    let count = clock.raw();
    carried_on(clock, count).unwrap_or_else(|| {
        let now = Timestamp::now();
        // Between the two looks the thread may have had to stand still.
        if clock.delta(count, clock.raw()) < TOGETHER {
            ANCHOR.set(Some((count, now)));
        }
        now
    })
}

/// `None` where the counter has gone back, or on for too long.
fn carried_on(clock: &Clock, count: u64) -> Option<Timestamp> {
    let (then, time) = ANCHOR.get().filter(|(then, _)| *then <= count)?;
    let passed = Duration::from_nanos(clock.delta_as_nanos(then, count));
    (passed < TRUSTED).then(|| Timestamp::from_micros(time.as_micros() + micros(passed)))
}

/// Measuring the counter takes a millisecond, on some machines a fifth of a second: nobody waits for it. Without the
/// thread the kernel is asked every time.
fn prepare() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let measure = || drop(CLOCK.set(Clock::new()));
        drop(thread::Builder::new().name("locker-clock".into()).spawn(measure));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_harness::eventually;

    #[test]
    fn it_is_the_same_time() {
        eventually("the measure of the counter", || {
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
    fn a_counter_that_jumps_is_not_believed() {
        let clock = Clock::new();
        let (count, time) = (clock.raw(), Timestamp::from_micros(7));
        ANCHOR.set(Some((count, time)));
        assert_eq!(carried_on(&clock, count), Some(time));
        assert_eq!(carried_on(&clock, count - 1), None);
        assert_eq!(carried_on(&clock, count + 1_000_000_000_000), None);
    }
}
