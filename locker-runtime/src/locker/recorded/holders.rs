//! The spans of the holds of one locker, to which the spans of waits are linked.

use locker_core::{
    diagnostics::Span,
    key::Key,
    sync::{Mutex, lock},
};
use std::collections::HashMap;

/// The spans by key. Empty unless a subscriber wants spans.
#[derive(Debug, Default)]
pub(super) struct Holders(Mutex<HashMap<Key, Vec<Span>, foldhash::fast::RandomState>>);

impl Holders {
    pub(super) fn add(&self, key: &Key, span: &Span) {
        if span.is_on() {
            lock(&self.0).entry(key.clone()).or_default().push(span.clone());
        }
    }

    pub(super) fn remove(&self, key: &Key, span: &Span) {
        if !span.is_on() {
            return;
        }
        let mut holders = lock(&self.0);
        let removed = holders.get_mut(key).and_then(|spans| {
            let at = spans.iter().position(|other| other.is(span))?;
            Some(spans.swap_remove(at))
        });
        if holders.get(key).is_some_and(Vec::is_empty) {
            holders.remove(key);
        }
        // A subscriber may call anything, so the map is no longer borrowed.
        drop(holders);
        drop(removed);
    }

    /// Calls `then` with the span of each holder, if a subscriber wants the span of the `waiter`.
    pub(super) fn each(&self, key: &Key, waiter: &Span, then: impl FnMut(&Span)) {
        if waiter.is_on() {
            let spans = lock(&self.0).get(key).cloned().unwrap_or_default();
            spans.iter().for_each(then);
        }
    }
}
