//! Code that is not ours (a subscriber of events, a store, a waker) may panic where it would end what others need:
//! renewals, timers, the clock of a store. There it is called through here.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Wake, Waker},
};

/// What `call` returns; `None`: it has panicked, which the process's panic hook has told.
pub(crate) fn contain<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Wakes whoever this is; that it panics is his own harm.
pub(crate) fn wake(waker: Waker) {
    contain(|| waker.wake());
}

/// A waker for those who would call `waker` themselves.
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
