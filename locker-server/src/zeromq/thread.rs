//! The thread of the socket that clients ask.

use std::{io, panic, thread};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Runs what is spawned on it one piece after the other, the ZeroMQ library's own tasks among it: between two looks at
/// what that does nothing happens. Ends when it is dropped.
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

    /// What `work` ends with.
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
