//! The thread of the ROUTER socket.

use std::{io, panic, thread};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A thread with a single-threaded runtime. The tasks of the ZeroMQ library run on it as well, so that nothing else
/// happens between two polls of a task. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Thread {
    handle: Handle,
    _end: DropGuard,
}

impl Thread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        thread::Builder::new().name("zeromq".into()).spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(Self { handle, _end: end.drop_guard() })
    }

    /// Runs `work` on the thread and returns its output.
    ///
    /// # Panics
    /// As `work`.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        match self.handle.spawn(work).await {
            Ok(output) => output,
            Err(error) => panic::resume_unwind(error.into_panic()),
        }
    }
}
