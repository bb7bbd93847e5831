//! A thread that does work on a value of its own, one piece after the other.
//!
//! A call of the system may wait for a slow disk. The caller awaits the result, and blocks no thread of its own.

use locker_cas::queue::{Call, Receiver, Sender, WeakSender, queue};
use locker_core::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};
use tokio::sync::oneshot;

/// The queue of a thread, which ends after the last worker is dropped.
pub(super) struct Worker<T>(Sender<Work<T>>);

/// A worker that does not keep its thread.
pub(super) struct WeakWorker<T>(WeakSender<Work<T>>);

type Work<T> = Box<dyn Piece<T>>;

/// A piece of work.
trait Piece<T>: Send {
    fn is_given_up(&self) -> bool;
    fn act(self: Box<Self>, value: &mut T);
}

/// Work whose result a caller awaits.
struct Asked<W, R> {
    work: W,
    answer: oneshot::Sender<R>,
}

/// Work that is done in any case.
struct Told<W>(W);

impl<T: 'static> Worker<T> {
    /// Starts a thread, which makes the value.
    pub(super) async fn start(name: &str, make: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Self> {
        let ((sender, work), (answer, started)) = (queue(), oneshot::channel());
        let serve = move || {
            let (value, outcome) =
                make().map_or_else(|error| (None, Err(error)), |value| (Some(value), Ok(())));
            let is_awaited = answer.send(outcome).is_ok();
            if let Some(value) = value.filter(|_| is_awaited) {
                serve(value, &work);
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
        let waiting = self.0.waiting();
        let (answer, result) = oneshot::channel();
        self.0.send(Box::new(Asked { work, answer }));
        let result = result.await;
        waiting.end();
        result.map_err(|_| failed().unknown())
    }

    /// Has some work done on the thread.
    pub(super) fn send(&self, work: impl FnOnce(&mut T) + Send + 'static) {
        self.0.send(Box::new(Told(work)));
    }

    /// The number of pieces of work that wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.queued()
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

impl<T, R: Send, W: FnOnce(&mut T) -> R + Send> Piece<T> for Asked<W, R> {
    fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    fn act(self: Box<Self>, value: &mut T) {
        drop(self.answer.send((self.work)(value)));
    }
}

impl<T, W: FnOnce(&mut T) + Send> Piece<T> for Told<W> {
    fn is_given_up(&self) -> bool {
        false
    }

    fn act(self: Box<Self>, value: &mut T) {
        (self.0)(value);
    }
}

impl<T> Call for Work<T> {
    fn is_given_up(&self) -> bool {
        (**self).is_given_up()
    }
}

fn serve<T>(mut value: T, queue: &Receiver<Work<T>>) {
    while let Some(work) = block_on(queue.recv()) {
        // The caller of work that panics gets an error.
        drop(catch_unwind(AssertUnwindSafe(|| work.act(&mut value))));
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
