//! The one thread of this crate: timers, renewals, releases of dropped guards and connections live on it, so that
//! a busy executor of the application starves none of them.

use crate::clock::Timestamp;
use once_cell::sync::Lazy;
use std::{cell::Cell, future::Future, thread, time::Duration};
use tokio::{
    runtime::{Builder, EnterGuard, Handle},
    time::{Instant, Sleep},
};

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

/// A timer of the background thread; it works under any executor.
pub(crate) async fn sleep(duration: Duration) {
    sleep_until(Timestamp::now() + duration).await;
}

/// Waits until the clock of [`Timestamp::now`] says so, also when the machine was suspended meanwhile.
pub(crate) async fn sleep_until(time: Timestamp) {
    sleep_from(Timestamp::now(), time).await;
}

/// [`sleep_until`] for callers who know what time it was just now.
pub(crate) async fn sleep_from(mut now: Timestamp, time: Timestamp) {
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    while now < time {
        timer(now, time.since(now).min(LONGEST)).await;
        now = Timestamp::now();
    }
}

fn timer(now: Timestamp, duration: Duration) -> Sleep {
    let _entered = enter();
    tokio::time::sleep_until(instant(now) + duration)
}

/// What tokio's clock says at `now`: read anew once a second, since reading clocks is much of what waiting costs.
fn instant(now: Timestamp) -> Instant {
    thread_local! {
        static READ: Cell<Option<(Timestamp, Instant)>> = const { Cell::new(None) };
    }
    let fresh = READ.get().filter(|(at, _)| *at <= now && now.since(*at) < Duration::from_secs(1));
    let (at, instant) = fresh.unwrap_or_else(|| {
        let read = (Timestamp::now(), Instant::now());
        READ.set(Some(read));
        read
    });
    instant + now.since(at)
}
