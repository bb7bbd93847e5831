//! The same futures for callers that are not async.

use std::{
    future::Future,
    mem::take,
    pin::pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};
use tokio::task::unconstrained;

/// Drives `future` on the calling thread; timers and connections live on the background thread, so this works
/// outside any runtime and inside every flavour of one. It blocks the thread it is called on.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    // Within a task, tokio's timers and channels stop answering after a while until the task yields, which this cannot.
    let mut future = pin!(unconstrained(future));
    // Most calls on the embedded store are answered at once: no waker has to be made for them.
    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return value;
    }
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => bell.wait(),
        }
    }
}

/// Wakes one blocked call. `thread::park` would not do: whoever drives the caller may wait by it too and would miss
/// what woke this call instead, and while a thread ends its thread-locals, wakers kept there among them, are gone.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn rung(&self) -> MutexGuard<'_, bool> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let rung = self.heard.wait_while(self.rung(), |rung| !take(rung));
        drop(rung);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rung() = true;
        self.heard.notify_one();
    }
}
