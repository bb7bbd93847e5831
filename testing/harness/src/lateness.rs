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
pub struct Lateness(Arc<Naps>);

#[derive(Debug)]
struct Naps {
    began: Instant,
    /// When the present nap began, in microseconds after `began`.
    present: AtomicU64,
    worst: AtomicU64,
}

const NAP: Duration = Duration::from_millis(5);

impl Naps {
    fn passed(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes by how much the present nap is too long by now.
    fn look(&self) {
        let slept = Duration::from_micros(self.passed().saturating_sub(self.present.load(Ordering::SeqCst)));
        let late = u64::try_from(slept.saturating_sub(NAP).as_micros()).unwrap_or(u64::MAX);
        self.worst.fetch_max(late, Ordering::SeqCst);
    }
}

impl Lateness {
    /// Measures while the value lives.
    #[must_use]
    pub fn measure() -> Self {
        let naps = Naps { began: Instant::now(), present: AtomicU64::new(0), worst: AtomicU64::new(0) };
        let naps = Arc::new(naps);
        let weak = Arc::downgrade(&naps);
        thread::spawn(move || {
            while let Some(naps) = weak.upgrade() {
                // What is measured: by how much this machine oversleeps.
                thread::sleep(NAP);
                naps.look();
                naps.present.store(naps.passed(), Ordering::SeqCst);
            }
        });
        Self(naps)
    }

    /// Returns the longest time so far.
    #[must_use]
    pub fn worst(&self) -> Duration {
        // A law may see that it is broken before the thread runs again.
        self.0.look();
        Duration::from_micros(self.0.worst.load(Ordering::SeqCst))
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
        let worst = machine.worst();
        assert!(worst > LATE, "{broken}, on a machine that was late by {worst:?} at most");
    }
    panic!("this machine is too busy for a law about times");
}
