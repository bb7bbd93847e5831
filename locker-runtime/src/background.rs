//! The one thread of this crate: timers, renewals, releases of dropped guards and connections live on it, so that
//! a busy executor of the application starves none of them.

pub(crate) mod alarm;
mod timers;

use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
};
use once_cell::sync::OnceCell;
use std::{
    future::{Future, pending},
    io,
    sync::mpsc,
    thread,
    time::Duration,
};
pub(crate) use timers::Sleep;
use tokio::runtime::{Builder, EnterGuard, Handle};

/// Empty until the system has what it takes, which is then there for good.
static RUNTIME: OnceCell<Handle> = OnceCell::new();

fn runtime() -> Result<&'static Handle> {
    RUNTIME.get_or_try_init(|| {
        start().map_err(|error| {
            let message = format!("the system refuses what the background thread needs: {error}");
            Error::new(ErrorKind::Unavailable, message).with_source(error)
        })
    })
}

/// The runtime is made on its thread: when there is no thread, there is nothing to be taken down again.
fn start() -> io::Result<Handle> {
    let (sender, handle) = mpsc::channel();
    let run = move || match Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => {
            drop(sender.send(Ok(runtime.handle().clone())));
            runtime.block_on(pending::<()>());
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    thread::Builder::new().name("locker".into()).spawn(run)?;
    handle.recv().unwrap_or_else(|_| Err(io::Error::other("it has ended")))
}

/// Starts the background thread, unless it runs: to be called, where an error can be told, before what needs it.
pub(crate) fn ready() -> Result<()> {
    runtime().map(drop)
}

/// Runs `future` on the background thread.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    drop(runtime().map(|runtime| runtime.spawn(future)));
}

/// Makes timers and sockets created meanwhile belong to the background thread.
fn enter() -> EnterGuard<'static> {
    runtime().expect("whoever waits has asked something, and asking begins with `ready`").enter()
}

/// Waits for `duration`, under any executor.
pub(crate) fn sleep(duration: Duration) -> Sleep {
    let now = Timestamp::now();
    Sleep::new(now, now + duration)
}

/// Waits until the clock of [`Timestamp::now`] says so, also when the machine was suspended meanwhile.
#[cfg(feature = "redis")]
pub(crate) fn sleep_until(time: Timestamp) -> Sleep {
    Sleep::new(Timestamp::now(), time)
}

/// [`sleep_until`] for callers who know what time it was just now.
pub(crate) fn sleep_from(now: Timestamp, time: Timestamp) -> Sleep {
    Sleep::new(now, time)
}
