//! What a test does to the embedded store: its clock moves on, and it fails.

use super::Memory;
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind},
};
use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// The state of a store under test.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// How far the clock is ahead of the callers' clock, in microseconds.
    ahead: AtomicU64,
    outages: AtomicUsize,
}

impl Control {
    pub(super) fn ahead(&self) -> Duration {
        Duration::from_micros(self.ahead.load(Ordering::SeqCst))
    }

    /// Returns the error of calls while the store fails.
    pub(super) fn outage(&self) -> Option<Error> {
        let fails = self.outages.load(Ordering::SeqCst) > 0;
        fails
            .then(|| Error::new(ErrorKind::Unavailable, "the test has begun an outage of the store").unsent())
    }
}

#[doc(hidden)]
impl Memory {
    /// Moves the clock of this store on, and applies what is due then. Every waiter asks again.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(micros));
        let _ = self.0.control.ahead.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        self.catch_up();
    }

    /// Makes calls fail with `Unavailable`. Nothing is due meanwhile.
    pub fn begin_outage(&self) {
        self.0.control.outages.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends what one [`begin_outage`](Self::begin_outage) has begun. After the last one, what is due is applied, and
    /// every waiter asks again.
    pub fn end_outage(&self) {
        if self.0.control.outages.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.catch_up();
        }
    }

    fn catch_up(&self) {
        if !self.0.process.is_this() {
            return;
        }
        self.0.tick(self.0.here(Timestamp::now()));
        self.0.mailboxes.wake_within(Duration::ZERO);
    }
}
