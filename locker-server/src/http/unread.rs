//! The cap on long answers that clients have not read.

use crate::{api::Answer, caps::Cap};
use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The bytes of longer answers count as unread until they are sent.
const LONG: usize = 16 * 1024;

/// The cap on the bytes of long answers that were not yet sent.
#[derive(Debug)]
pub(super) struct UnreadCap {
    bytes: Cap,
    refusals: AtomicUsize,
}

impl UnreadCap {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Cap::new(limit), refusals: AtomicUsize::new(0) }
    }

    /// Counts a long answer. Returns `None` for other answers, for a text that is in memory once, and for a grant,
    /// which is never refused.
    ///
    /// # Errors
    /// 503 if the cap is reached.
    pub(super) fn count(self: &Arc<Self>, answer: &Answer) -> Result<Option<Unread>, Answer> {
        let bytes = match &answer.body {
            Cow::Owned(text) if answer.fence.is_none() => text.len(),
            _ => 0,
        };
        if bytes <= LONG {
            return Ok(None);
        }
        if self.bytes.try_add(bytes) {
            return Ok(Some(Unread { cap: self.clone(), bytes }));
        }
        self.refusals.fetch_add(1, Ordering::Relaxed);
        Err(Answer::too_much_unread())
    }

    /// Returns how many answers were refused.
    pub(super) fn refusals(&self) -> usize {
        self.refusals.load(Ordering::Relaxed)
    }
}

/// The bytes of one answer, which count until this is dropped.
#[derive(Debug)]
pub(super) struct Unread {
    cap: Arc<UnreadCap>,
    bytes: usize,
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.cap.bytes.subtract(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long() -> Answer {
        Answer::text("x".repeat(LONG + 1))
    }

    #[test]
    fn long_answers_count_until_they_are_dropped() {
        let cap = Arc::new(UnreadCap::new(2 * LONG));
        assert!(cap.count(&Answer::text("x".repeat(LONG))).unwrap().is_none());
        let unread = cap.count(&long()).unwrap();
        assert!(unread.is_some());
        assert_eq!((cap.count(&long()).unwrap_err().status, cap.refusals()), (503, 1));
        drop(unread);
        assert!(cap.count(&long()).unwrap().is_some());
    }

    /// The hold would stay taken, and nobody would know its key.
    #[test]
    fn grant_with_a_long_key_is_never_refused() {
        let cap = Arc::new(UnreadCap::new(0));
        assert!(cap.count(&long().with_fence(1)).unwrap().is_none());
    }
}
