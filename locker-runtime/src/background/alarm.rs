//! An alarm: the earliest of many due times, for one task that acts on them.

use crate::clock::Timestamp;
use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// The earliest due time, and the wake-up of the task that waits for it.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// In microseconds.
    next: AtomicU64,
    earlier: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { next: AtomicU64::new(Timestamp::NEVER.as_micros()), earlier: Notify::new() }
    }
}

impl Alarm {
    /// The time for which the alarm is set.
    pub(crate) fn next(&self) -> Timestamp {
        Timestamp::from_micros(self.next.load(Ordering::SeqCst))
    }

    /// Sets the alarm to `due` unless it is set to an earlier time.
    pub(crate) fn set(&self, due: Timestamp) {
        let due = due.as_micros();
        if due < self.next.load(Ordering::SeqCst) && due < self.next.fetch_min(due, Ordering::SeqCst) {
            self.earlier.notify_one();
        }
    }

    /// Clears the alarm: to be called by the waiting task before it looks for due times and sets it again.
    pub(crate) fn reset(&self) {
        self.next.store(Timestamp::NEVER.as_micros(), Ordering::SeqCst);
    }

    /// Waits until the alarm's time has come. `sleep` waits until a time, given the present one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn due<S: Future<Output = ()>>(&self, sleep: impl Fn(Timestamp, Timestamp) -> S) {
        loop {
            let (next, now) = (self.next(), Timestamp::now());
            if next <= now {
                return;
            }
            tokio::select! {
                () = self.earlier.notified() => {}
                () = sleep(now, next) => {}
            }
        }
    }
}
