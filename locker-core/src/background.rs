//! The background thread, which runs timers, renewals, releases of dropped guards, and connections. A busy executor of
//! the application cannot starve them.

pub mod alarm;
mod ending;
mod timers;

#[cfg(feature = "_world")]
use crate::process::world;
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    process::PerProcess,
};
pub use ending::{Ending, ended};
use std::{
    future::{Future, pending},
    io,
    sync::Arc,
    thread,
    time::Duration,
};
pub use timers::Sleep;
use tokio::runtime::{Builder, EnterGuard, Handle};

/// The maximum of threads for work that takes long, and how long they wait for more of it.
const WORKERS: usize = 16;
const KEEP_WORKERS: Duration = Duration::from_secs(10);

/// The runtime of the background thread; empty until the thread has started.
static RUNTIME: PerProcess<Handle> = PerProcess::new();

fn runtime() -> Result<&'static Handle> {
    RUNTIME.cell().get_or_try_init(|| {
        start().map_err(|error| {
            let message = format!(
                "the background thread cannot be started, check the limits of threads and open files: {error}"
            );
            Error::new(ErrorKind::Unavailable, message).with_source(error)
        })
    })
}

/// Starts the thread. The caller does not wait for it: that could take the caller's unpark token.
fn start() -> io::Result<Handle> {
    let mut builder = Builder::new_current_thread();
    builder.thread_name("locker-work").max_blocking_threads(WORKERS).thread_keep_alive(KEEP_WORKERS);
    let runtime = Arc::new(builder.enable_io().enable_time().build()?);
    let handle = runtime.handle().clone();
    let driven = Arc::clone(&runtime);
    let started =
        thread::Builder::new().name("locker".into()).spawn(move || driven.block_on(pending::<()>()));
    started.map(|_| handle).inspect_err(|_| {
        // A runtime must not be dropped inside of another one.
        if let Some(runtime) = Arc::into_inner(runtime) {
            runtime.shutdown_background();
        }
    })
}

/// Starts the background thread unless it is running. Call it before any other function of this module.
///
/// # Errors
/// `Unavailable` if the system has no resources for the thread. A later call tries again.
pub fn ready() -> Result<()> {
    #[cfg(feature = "_world")]
    if world::current().is_some() {
        return Ok(());
    }
    runtime().map(drop)
}

/// Runs `future` on the background thread.
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    #[cfg(feature = "_world")]
    if let Some(world) = world::current() {
        return world.spawn(Box::pin(future));
    }
    drop(runtime().map(|runtime| runtime.spawn(future)));
}

/// Does work that takes long on a thread of its own, so that nothing on the background thread waits for it: holds are
/// renewed there.
///
/// # Panics
/// If the work panics.
#[cfg(feature = "_cas")]
pub async fn work<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    #[cfg(feature = "_world")]
    if world::current().is_some() {
        return work();
    }
    let runtime = runtime().expect("every call to a store begins with `ready`");
    match runtime.spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process ends.
            Err(_) => pending().await,
        },
    }
}

/// Registers timers and sockets with the background thread while the returned guard lives.
fn enter() -> EnterGuard<'static> {
    runtime().expect("every call to a store begins with `ready`").enter()
}

/// Waits for `duration`, under any executor.
#[must_use]
pub fn sleep(duration: Duration) -> Sleep {
    let now = Timestamp::now();
    Sleep::new(now, now + duration)
}

/// Waits until `time` on the clock of [`Timestamp::now`], under any executor. A suspend of the machine counts.
#[cfg(feature = "redis")]
#[must_use]
pub fn sleep_until(time: Timestamp) -> Sleep {
    Sleep::new(Timestamp::now(), time)
}

/// Waits until `time`, for callers that have just read the clock as `now`.
#[must_use]
pub fn sleep_from(now: Timestamp, time: Timestamp) -> Sleep {
    Sleep::new(now, time)
}
