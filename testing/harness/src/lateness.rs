//! How late this machine runs what is due, for tests that check how long something takes.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The longest time for which this machine has kept a thread waiting that was due to run.
#[derive(Debug)]
pub struct Lateness(Arc<AtomicU64>);

impl Lateness {
    /// Measures while the value lives.
    #[must_use]
    pub fn measure() -> Self {
        let worst = Arc::new(AtomicU64::new(0));
        let weak = Arc::downgrade(&worst);
        thread::spawn(move || {
            let nap = Duration::from_millis(5);
            while let Some(worst) = weak.upgrade() {
                let slept = Instant::now();
                // What is measured: by how much this machine oversleeps.
                thread::sleep(nap);
                let late = slept.elapsed().saturating_sub(nap).as_micros();
                worst.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self(worst)
    }

    /// Returns the longest time so far.
    #[must_use]
    pub fn worst(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// A time by which a machine that runs is not late.
const LATE: Duration = Duration::from_millis(400);

/// Runs a law about times. If it is broken while this machine stands still, that shows nothing, and it is run again.
///
/// # Panics
/// If the law is broken while the machine runs, or ten times.
pub fn while_the_machine_runs<E: Display>(mut law: impl FnMut() -> Result<(), E>) {
    for _ in 0..10 {
        let machine = Lateness::measure();
        let Err(broken) = law() else { return };
        assert!(
            machine.worst() > LATE,
            "{broken}, on a machine that was late by {:?} at most",
            machine.worst()
        );
    }
    panic!("this machine is too busy for a law about times");
}
