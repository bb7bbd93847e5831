//! Helpers that the tests of the attributes share.

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
    Locker(locker::Error),
    Own,
}

pub(crate) type Done<T = ()> = Result<T, Failure>;

impl Failure {
    /// Returns why the lock was not acquired, or was lost; `None` if the body failed.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        if let Self::Locker(error) = self { Some(error.kind()) } else { None }
    }
}

impl From<locker::Error> for Failure {
    fn from(error: locker::Error) -> Self {
        Self::Locker(error)
    }
}

/// A locker with its own store, so that no test depends on the global one.
pub(crate) static LOCKER: LazyLock<Locker> = LazyLock::new(Locker::memory);

/// Takes the lock of a function named `name` on these arguments. Returns `None` if it is not free.
pub(crate) fn take(name: &str, arguments: &[&dyn KeyPart]) -> Option<Guard> {
    LOCKER.lock_on(name, arguments).try_acquire_blocking().unwrap()
}

/// Returns whether the lock becomes free within the default timeout, long before these tests' lease of an hour ends.
pub(crate) async fn becomes_free(name: &str, arguments: &[&dyn KeyPart]) -> bool {
    LOCKER.lock_on(name, arguments).acquire().await.is_ok()
}

/// Polls the future once.
pub(crate) fn start<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

thread_local! {
    /// The log lines of this thread.
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns what `call` logs through `tracing` on this thread.
///
/// The subscriber is one for all threads. With one per thread, `tracing` may cache that an event has no listener,
/// because a thread without a subscriber logged it first.
pub(crate) fn logged(call: impl FnOnce()) -> String {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    LOGGED.take();
    call();
    String::from_utf8(LOGGED.take()).unwrap()
}
