//! An alarm for a task that acts on many due times.

use crate::clock::Timestamp;
use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// The earliest of many due times. One task waits for it.
#[derive(Debug)]
pub struct Alarm {
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
    /// Returns the time for which the alarm is set, or `Timestamp::NEVER`.
    pub(crate) fn next(&self) -> Timestamp {
        Timestamp::from_micros(self.next.load(Ordering::SeqCst))
    }

    /// Sets the alarm to `due` unless it is set to an earlier time.
    pub fn set(&self, due: Timestamp) {
        let due = due.as_micros();
        if due < self.next.load(Ordering::SeqCst) && due < self.next.fetch_min(due, Ordering::SeqCst) {
            self.earlier.notify_one();
        }
    }

    /// Clears the alarm. The waiting task calls it before it collects the due times and sets the alarm again.
    pub fn reset(&self) {
        self.next.store(Timestamp::NEVER.as_micros(), Ordering::SeqCst);
    }

    /// Waits until the alarm is due. `sleep(now, time)` waits until `time`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn due<S: Future<Output = ()>>(&self, sleep: impl Fn(Timestamp, Timestamp) -> S) {
        loop {
            let (next, now) = (self.next(), Timestamp::now());
            if next <= now {
                return;
            }
            tokio::select! {
                biased;
                () = self.earlier.notified() => {}
                () = sleep(now, next) => {}
            }
        }
    }
}
