//! A pool of runtimes for blocked threads. A thread with a runtime reads its reply itself, which saves the wake-up by
//! the background thread.

use crate::{
    background,
    clock::Timestamp,
    process::{PerProcess, Process},
    sync::{Mutex, lock},
};
use std::{
    mem::{forget, replace, take},
    ops::Deref,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// The greatest number of runtimes. A thread keeps one until its call completes, also while it waits in a queue. The
/// other threads are woken by the background thread.
const MAX_RUNTIMES: usize = 8;

/// A runtime is created only if the previous call that found none was this recent: rarer calls are not worth a
/// connection.
const FREQUENT: Duration = Duration::from_millis(100);

/// The interval of the clean-up. A runtime is shut down after one to two intervals without use.
const IDLE: Duration = Duration::from_secs(5);

fn pool() -> &'static Mutex<Pool> {
    static POOL: PerProcess<Mutex<Pool>> = PerProcess::new();
    POOL.cell().get_or_init(Mutex::default)
}

#[derive(Default)]
struct Pool {
    /// The idle runtimes, and whether each was used since the last clean-up. The one returned last is lent first.
    idle: Vec<(Runtime, bool)>,
    count: usize,
    /// The time of the last call that found no idle runtime.
    missed: Timestamp,
    /// Whether the clean-up task is running.
    has_cleanup: bool,
}

/// A single-threaded runtime on loan. Dropping this returns the runtime to the pool.
pub(super) struct Lent(Option<Runtime>, &'static Process);

impl Lent {
    /// Borrows a runtime. Returns `None` if none is idle and none may or can be created.
    pub(super) fn borrow() -> Option<Self> {
        {
            let mut pool = lock(pool());
            if let Some((runtime, _)) = pool.idle.pop() {
                return Some(Self(Some(runtime), Process::this()));
            }
            let now = Timestamp::now();
            let is_frequent = now.since(replace(&mut pool.missed, now)) < FREQUENT;
            if pool.count >= MAX_RUNTIMES || !is_frequent {
                return None;
            }
            pool.count += 1;
        }
        let runtime = Builder::new_current_thread().enable_io().build();
        if runtime.is_err() {
            lock(pool()).count -= 1;
        }
        runtime.ok().map(|runtime| Self(Some(runtime), Process::this()))
    }
}

impl Deref for Lent {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("the runtime is returned only on drop")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.1.is_this() {
            return forget(self.0.take());
        }
        let mut pool = lock(pool());
        pool.idle.extend(self.0.take().map(|runtime| (runtime, true)));
        if !replace(&mut pool.has_cleanup, true) {
            drop(pool);
            background::spawn(clean_up());
        }
    }
}

/// Shuts down idle runtimes until the pool is empty.
async fn clean_up() {
    loop {
        background::sleep(IDLE).await;
        let (unused, is_empty) = {
            let mut pool = lock(pool());
            let (used, unused): (Vec<_>, Vec<_>) =
                take(&mut pool.idle).into_iter().partition(|(_, was_used)| *was_used);
            pool.idle = used.into_iter().map(|(runtime, _)| (runtime, false)).collect();
            pool.count -= unused.len();
            pool.has_cleanup = pool.count > 0;
            (unused, !pool.has_cleanup)
        };
        for (runtime, _) in unused {
            runtime.shutdown_background();
        }
        if is_empty {
            return;
        }
    }
}
