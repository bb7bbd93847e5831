//! Looks for messages that this process has missed.

use super::{inbox::Receiver, io::Io, worker::WeakWorker};
use locker_cas::Received;
use locker_core::background;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Looks for the file of a sender that found the queue full, on the thread that uses the files.
pub(super) struct Gaps {
    pub(super) receiver: Arc<Receiver>,
    pub(super) io: WeakWorker<Io>,
    /// Whether a look is under way, which has not begun.
    pub(super) is_asked: Arc<AtomicBool>,
}

impl Gaps {
    /// Looks, and reports a gap if there is one.
    pub(super) fn look(&self) {
        if self.is_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let (receiver, is_asked) = (Arc::clone(&self.receiver), Arc::clone(&self.is_asked));
        if let Some(io) = self.io.upgrade() {
            io.send(move |io| {
                is_asked.store(false, Ordering::Release);
                if io.socket.was_missed() {
                    background::spawn(async move { receiver(Received::Gap) });
                }
            });
        }
    }
}
