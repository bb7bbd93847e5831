//! What holds up the exchanges of a process before they are carried out, so that a test says in which order things
//! happen, and what goes wrong with them.

use super::{Fault, Outcome};
use crate::backend::Write;
use locker_core::{
    background,
    error::Result,
    sync::{Mutex, lock},
};
use locker_harness::eventually;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

#[derive(Default)]
pub(crate) struct Gate {
    closes_after_gone: AtomicBool,
    is_closed: AtomicBool,
    passed: AtomicU64,
    /// What goes wrong with the next exchanges.
    faults: Mutex<VecDeque<Fault>>,
    last: Mutex<Option<Write>>,
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

    /// Lets the next exchanges go wrong in this way.
    pub(crate) fn fail<const N: usize>(&self, faults: [Fault; N]) {
        lock(&self.faults).extend(faults);
    }

    pub(super) fn next_fault(&self) -> Option<Fault> {
        lock(&self.faults).pop_front()
    }

    /// Returns how many exchanges were made, but for those that were refused.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Returns the last request to write or to compare.
    pub(crate) fn last(&self) -> Write {
        lock(&self.last).clone().expect("an exchange")
    }

    pub(super) fn see(&self, write: &Write) {
        *lock(&self.last) = Some(write.clone());
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
