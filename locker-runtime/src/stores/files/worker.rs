//! A thread that does work on a value of its own, one piece after the other.
//!
//! A call of the system may wait for a slow disk. The caller awaits the result, and blocks no thread of its own.

use crate::error::{Error, ErrorKind, Result};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};
use tokio::sync::{
    mpsc::{self, UnboundedReceiver, UnboundedSender, WeakUnboundedSender},
    oneshot,
};

/// The queue of a thread, which ends after the last worker is dropped.
pub(super) struct Worker<T>(UnboundedSender<Work<T>>);

/// A worker that does not keep its thread.
pub(super) struct WeakWorker<T>(WeakUnboundedSender<Work<T>>);

type Work<T> = Box<dyn FnOnce(&mut T) + Send>;

impl<T: 'static> Worker<T> {
    /// Starts a thread, which makes the value.
    pub(super) async fn start(name: &str, make: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Self> {
        let ((sender, work), (answer, started)) = (mpsc::unbounded_channel(), oneshot::channel());
        let serve = move || {
            let (value, outcome) =
                make().map_or_else(|error| (None, Err(error)), |value| (Some(value), Ok(())));
            let is_awaited = answer.send(outcome).is_ok();
            if let Some(value) = value.filter(|_| is_awaited) {
                serve(value, work);
            }
        };
        thread::Builder::new().name(name.into()).spawn(serve).map_err(|error| {
            let message = format!("cannot start a thread, check the limit of threads: {error}");
            Error::new(ErrorKind::Unavailable, message).with_source(error)
        })?;
        started.await.unwrap_or_else(|_| Err(failed()))?;
        Ok(Self(sender))
    }

    /// Does some work on the thread, and returns its result. Work that nobody waits for any more is left out.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R> {
        let (answer, result) = oneshot::channel();
        self.send(move |value| {
            if !answer.is_closed() {
                drop(answer.send(work(value)));
            }
        });
        result.await.map_err(|_| failed().unknown())
    }

    /// Has some work done on the thread.
    pub(super) fn send(&self, work: impl FnOnce(&mut T) + Send + 'static) {
        // The thread lives as long as this.
        drop(self.0.send(Box::new(work)));
    }

    pub(super) fn downgrade(&self) -> WeakWorker<T> {
        WeakWorker(self.0.downgrade())
    }
}

impl<T> WeakWorker<T> {
    pub(super) fn upgrade(&self) -> Option<Worker<T>> {
        self.0.upgrade().map(Worker)
    }
}

fn serve<T>(mut value: T, mut queue: UnboundedReceiver<Work<T>>) {
    while let Some(work) = queue.blocking_recv() {
        // The caller of work that panics gets an error.
        drop(catch_unwind(AssertUnwindSafe(|| work(&mut value))));
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Unavailable, "a thread of the store has failed within a call")
}

impl<T> fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}
