//! The same futures for callers that are not async.

mod pool;

use pool::Lent;
use std::{
    cell::Cell,
    future::Future,
    mem::take,
    pin::pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};
use tokio::{
    runtime::Handle,
    task::{unconstrained, yield_now},
};

/// Drives `future` on the calling thread; timers and connections live on the background thread, so this works
/// outside any runtime and inside every flavour of one. It blocks the thread it is called on.
///
/// A thread of no runtime may be lent one, for connections that it then drives itself. In the context of a runtime it
/// uses none of that runtime's: what drives them may be waiting for this very thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    // Within a task, tokio's timers and channels stop answering after a while until the task yields, which this cannot.
    let mut future = pin!(unconstrained(future));
    let turn = Turn::begin();
    // Most calls on the embedded store are answered at once: no waker has to be made for them.
    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return value;
    }
    if Driver::of_this_thread() == Driver::Asked
        && turn.0 == Driver::Executor
        && Handle::try_current().is_err_and(|error| error.is_missing_context())
        && let Some(runtime) = Lent::borrow()
    {
        DRIVER.set(Driver::Lent);
        return runtime.block_on(async {
            // What has happened to its connections while nobody drove it is seen now: once by it, once by its tasks.
            yield_now().await;
            yield_now().await;
            future.await
        });
    }
    DRIVER.set(Driver::Blocked);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => bell.wait(),
        }
    }
}

/// What drives the futures that a thread polls now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Whatever executor the thread is of, if any.
    Executor,
    /// [`block_on`], which does not know yet whether anything needs a driver.
    Nobody,
    /// The same; something does.
    Asked,
    /// [`block_on`], with a runtime for this call.
    Lent,
    /// [`block_on`], without one.
    Blocked,
}

thread_local! {
    static DRIVER: Cell<Driver> = const { Cell::new(Driver::Executor) };
}

impl Driver {
    pub(crate) fn of_this_thread() -> Self {
        DRIVER.get()
    }

    /// Has [`block_on`] poll again with a driver, if there is one.
    pub(crate) fn ask_for_one() {
        DRIVER.set(Self::Asked);
    }
}

/// The time of one [`block_on`]; what drove the thread before drives it again afterwards.
struct Turn(Driver);

impl Turn {
    fn begin() -> Self {
        Self(DRIVER.replace(Driver::Nobody))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        DRIVER.set(self.0);
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
