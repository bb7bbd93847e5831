//! What the tests of the attributes have in common.

use locker::{ErrorKind, Guard, KeyPart, Locker};
use std::{
    cell::RefCell,
    future::Future,
    io,
    pin::Pin,
    sync::{LazyLock, Once},
    task::{Context, Poll, Waker},
};

/// The error of the tests' functions.
#[derive(Debug)]
pub(crate) enum Failure {
    NotLetIn(locker::Error),
    Own,
}

pub(crate) type Done<T = ()> = Result<T, Failure>;

impl Failure {
    /// Why the function was not let in, or lost what it held.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        if let Self::NotLetIn(error) = self { Some(error.kind()) } else { None }
    }
}

impl From<locker::Error> for Failure {
    fn from(error: locker::Error) -> Self {
        Self::NotLetIn(error)
    }
}

/// A store of the tests' own, so that no test depends on the process's global locker.
pub(crate) static LOCKER: LazyLock<Locker> = LazyLock::new(Locker::memory);

/// The lock of a function named `name` on these arguments, if it is free now.
pub(crate) fn take(name: &str, arguments: &[&dyn KeyPart]) -> Option<Guard> {
    LOCKER.lock_on(name, arguments).try_acquire_blocking().unwrap()
}

/// Whether the lock is free, or becomes so long before the lease of an hour that these tests use is over.
pub(crate) async fn becomes_free(name: &str, arguments: &[&dyn KeyPart]) -> bool {
    LOCKER.lock_on(name, arguments).acquire().await.is_ok()
}

/// Runs `future` as far as it goes without waiting.
pub(crate) fn start<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

thread_local! {
    /// What was told on this thread.
    static TOLD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TOLD.with_borrow_mut(|told| told.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is told through `tracing` while `call` runs on this thread.
///
/// By a subscriber for all threads: beside one of a thread's own, `tracing` may remember that nobody listens to what
/// another thread tells first.
pub(crate) fn told(call: impl FnOnce()) -> String {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    TOLD.take();
    call();
    String::from_utf8(TOLD.take()).unwrap()
}
