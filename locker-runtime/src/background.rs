//! The one thread of this crate: timers, renewals, releases of dropped guards and connections live on it, so that
//! a busy executor of the application starves none of them.

mod timers;

use crate::clock::Timestamp;
use once_cell::sync::Lazy;
use std::{future::Future, thread, time::Duration};
pub(crate) use timers::Sleep;
use tokio::runtime::{Builder, EnterGuard, Handle};

static RUNTIME: Lazy<Handle> = Lazy::new(|| {
    let runtime =
        Builder::new_current_thread().enable_all().build().expect("the system refuses an event queue");
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("locker".into()).spawn(run).expect("the system refuses a thread");
    handle
});

/// Runs `future` on the background thread.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    drop(RUNTIME.spawn(future));
}

/// Makes timers and sockets created meanwhile belong to the background thread.
pub(crate) fn enter() -> EnterGuard<'static> {
    RUNTIME.enter()
}

/// Waits for `duration`, under any executor.
pub(crate) fn sleep(duration: Duration) -> Sleep {
    let now = Timestamp::now();
    Sleep::new(now, now + duration)
}

/// Waits until the clock of [`Timestamp::now`] says so, also when the machine was suspended meanwhile.
pub(crate) fn sleep_until(time: Timestamp) -> Sleep {
    Sleep::new(Timestamp::now(), time)
}

/// [`sleep_until`] for callers who know what time it was just now.
pub(crate) fn sleep_from(now: Timestamp, time: Timestamp) -> Sleep {
    Sleep::new(now, time)
}
