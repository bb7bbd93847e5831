//! Containment of panics in foreign code: subscribers of events, stores and wakers.
//!
//! Such a panic must not end work that other callers need, for example renewals and timers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Wake, Waker},
};

/// Returns the result of `call`, or `None` if it panicked. The process's panic hook has then reported the panic.
pub fn contain<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Wakes a task and contains a panic of its waker.
pub fn wake(waker: Waker) {
    contain(|| waker.wake());
}

/// Wraps `waker` so that its panics are contained.
pub(crate) fn contained(waker: &Waker) -> Waker {
    Waker::from(Arc::new(Contained(waker.clone())))
}

struct Contained(Waker);

impl Wake for Contained {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        contain(|| self.0.wake_by_ref());
    }
}
