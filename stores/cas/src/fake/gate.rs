//! What holds up the exchanges of a process before they are carried out, so that a test says in which order things
//! happen.

use super::Outcome;
use locker_core::{background, error::Result};
use locker_harness::eventually;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

#[derive(Default)]
pub(crate) struct Gate {
    closes_after_gone: AtomicBool,
    is_closed: AtomicBool,
    passed: AtomicU64,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn open(&self) {
        self.is_closed.store(false, Ordering::Relaxed);
    }

    /// Closes after the next exchange whose messages have found a process gone.
    pub(crate) fn close_after_gone(&self) {
        self.closes_after_gone.store(true, Ordering::Relaxed);
    }

    /// Opens, and returns when an exchange that waited was carried out.
    pub(crate) fn let_pass(&self) {
        let before = self.passed.load(Ordering::Relaxed);
        assert!(self.is_closed.swap(false, Ordering::Relaxed), "no process was gone");
        eventually("an exchange", || (self.passed.load(Ordering::Relaxed) > before).then_some(()));
    }

    pub(super) async fn pass(&self) {
        while self.is_closed.load(Ordering::Relaxed) {
            background::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Notes that an exchange was carried out.
    pub(super) fn note(&self, answer: &Result<Outcome>) {
        let found_gone = matches!(answer, Ok(Outcome::Matched { gone, .. }) if !gone.is_empty());
        if found_gone && self.closes_after_gone.swap(false, Ordering::Relaxed) {
            self.close();
        }
        self.passed.fetch_add(1, Ordering::Relaxed);
    }
}
