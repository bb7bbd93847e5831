//! Futures driven by blocking callers.

mod pool;

use pool::Lent;
use std::{
    cell::Cell,
    fmt,
    future::Future,
    mem::take,
    pin::{Pin, pin},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};
use tokio::{
    runtime::Handle,
    task::{coop::Unconstrained, unconstrained, yield_now},
};

/// Runs `future` to completion and blocks the calling thread.
///
/// It works outside of any runtime and inside of every kind, because timers and connections belong to the background
/// thread. A thread outside of any runtime may borrow a pooled runtime and drive a connection itself. Inside of a
/// runtime it never uses that runtime's connections, because their driver may be waiting for this thread.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general over the lifetime")]
pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_within(future, |rest| rest.run())
}

/// Does what [`block_on`] does. If the future is not ready at its first poll, `around` is called to run the rest of it:
/// for callers that have something to let go of while they wait.
pub fn block_on_within<F: Future>(future: F, around: impl FnOnce(Rest<'_, F>) -> F::Output) -> F::Output {
    // Inside a task, tokio's cooperative budget would run out, because a blocked thread cannot yield.
    let mut future = pin!(unconstrained(future));
    let scope = DriverScope::begin();
    // Most calls of the embedded store complete at the first poll, without a waker.
    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return value;
    }
    around(Rest { future, outer: scope.0 })
}

/// A future that was not ready at its first poll.
pub struct Rest<'a, F> {
    future: Pin<&'a mut Unconstrained<F>>,
    /// The driver of the thread around the call.
    outer: Driver,
}

impl<F: Future> Rest<'_, F> {
    /// Runs the future to completion and blocks the thread.
    #[must_use]
    pub fn run(self) -> F::Output {
        let Self { mut future, outer } = self;
        if Driver::of_this_thread() == Driver::Asked
            && outer == Driver::Executor
            && Handle::try_current().is_err_and(|error| error.is_missing_context())
            && let Some(runtime) = Lent::borrow()
        {
            DRIVER.set(Driver::Lent);
            return runtime.block_on(async {
                // Nothing drove the runtime while it was idle: the first yield processes its I/O events, the second its
                // tasks.
                yield_now().await;
                yield_now().await;
                future.await
            });
        }
        DRIVER.set(Driver::Blocked);
        let parker = Arc::new(Parker::default());
        let waker = Waker::from(parker.clone());
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => parker.wait(),
            }
        }
    }
}

impl<F> fmt::Debug for Rest<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("outer", &self.outer).finish_non_exhaustive()
    }
}

/// The driver of the futures that a thread polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The executor of the thread, if there is one.
    Executor,
    /// [`block_on`] at its first poll, before the future has requested a driver.
    Nobody,
    /// [`block_on`] at its first poll, after the future has requested a driver.
    Asked,
    /// [`block_on`] with a pooled runtime.
    Lent,
    /// [`block_on`] without a runtime.
    Blocked,
}

thread_local! {
    static DRIVER: Cell<Driver> = const { Cell::new(Driver::Executor) };
}

impl Driver {
    /// Returns what drives the futures that this thread waits for.
    #[must_use]
    pub fn of_this_thread() -> Self {
        DRIVER.get()
    }

    /// Requests a driver: [`block_on`] polls the future again with a pooled runtime if one is available.
    pub(crate) fn ask_for_one() {
        DRIVER.set(Self::Asked);
    }
}

/// The scope of one [`block_on`]; dropping it restores the thread's previous driver.
struct DriverScope(Driver);

impl DriverScope {
    fn begin() -> Self {
        Self(DRIVER.replace(Driver::Nobody))
    }
}

impl Drop for DriverScope {
    fn drop(&mut self) {
        DRIVER.set(self.0);
    }
}

/// Parks the thread of one blocked call.
///
/// `thread::park` does not work here: an outer executor may park the same thread and would miss a wake-up that this
/// call consumes. A waker in a thread-local is also gone while its thread ends.
#[derive(Default)]
struct Parker {
    woken: Mutex<bool>,
    wake_up: Condvar,
}

impl Parker {
    fn woken(&self) -> MutexGuard<'_, bool> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let woken = self.wake_up.wait_while(self.woken(), |woken| !take(woken));
        drop(woken);
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken() = true;
        self.wake_up.notify_one();
    }
}
