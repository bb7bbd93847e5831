//! Servers for several tests.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A server that tests share which run at the same time. The last of them stops it.
#[derive(Debug)]
pub struct Shared<S>(Mutex<Weak<S>>);

impl<S> Shared<S> {
    /// Returns a place for a server, which is not started yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// Returns the server. Starts it if no other test has it. Returns `None` if `start` does.
    pub fn get(&self, start: impl FnOnce() -> Option<S>) -> Option<Arc<S>> {
        // If it could not be started for another test, this one says so, too.
        let mut server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = server.upgrade() {
            return Some(server);
        }
        let started = Arc::new(start()?);
        *server = Arc::downgrade(&started);
        Some(started)
    }
}

impl<S> Default for Shared<S> {
    fn default() -> Self {
        Self::new()
    }
}
