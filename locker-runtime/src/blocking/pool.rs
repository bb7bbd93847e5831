//! Runtimes lent to threads that block, so that a thread waits for the answer itself instead of being woken by another
//! that did.

use crate::{
    background,
    clock::Timestamp,
    sync::{Mutex, lock},
};
use once_cell::sync::Lazy;
use std::{
    mem::{replace, take},
    ops::Deref,
    process,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// How many there are at most. A thread keeps one until its call is answered, also while it waits in a queue; the other
/// threads wait for the background thread.
const MOST: usize = 8;

/// Calls that come more seldom gain nothing worth a connection.
const OFTEN: Duration = Duration::from_millis(100);

/// One that nobody has used for so long, or for twice as long, is given up.
const IDLE: Duration = Duration::from_secs(5);

static POOL: Lazy<Mutex<Pool>> = Lazy::new(Mutex::default);

#[derive(Default)]
struct Pool {
    /// And whether they were lent lately. The one that came back last goes first.
    idle: Vec<(Runtime, bool)>,
    made: usize,
    /// When there was last none for a call.
    missed: Timestamp,
    /// Whose they are. A forked process would talk over the sockets of the other one.
    process: Option<u32>,
    watched: bool,
}

/// A runtime of a single thread, until dropped that of the thread that has this.
pub(super) struct Lent(Option<Runtime>);

impl Lent {
    /// `None`: none is left, or they are not worth it.
    pub(super) fn borrow() -> Option<Self> {
        {
            let (mut pool, process) = (lock(&POOL), process::id());
            if *pool.process.get_or_insert(process) != process {
                return None;
            }
            if let Some((runtime, _)) = pool.idle.pop() {
                return Some(Self(Some(runtime)));
            }
            let now = Timestamp::now();
            let is_often = now.since(replace(&mut pool.missed, now)) < OFTEN;
            if pool.made >= MOST || !is_often {
                return None;
            }
            pool.made += 1;
        }
        let made = Builder::new_current_thread().enable_io().build();
        if made.is_err() {
            lock(&POOL).made -= 1;
        }
        made.ok().map(|runtime| Self(Some(runtime)))
    }
}

impl Deref for Lent {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is given back when dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut pool = lock(&POOL);
        pool.idle.extend(self.0.take().map(|runtime| (runtime, true)));
        if !replace(&mut pool.watched, true) {
            drop(pool);
            background::spawn(watch());
        }
    }
}

/// Gives up those that are idle, until there are none.
async fn watch() {
    loop {
        background::sleep(IDLE).await;
        let (over, was_last) = {
            let mut pool = lock(&POOL);
            let (fresh, over): (Vec<_>, Vec<_>) =
                take(&mut pool.idle).into_iter().partition(|(_, lent)| *lent);
            pool.idle = fresh.into_iter().map(|(runtime, _)| (runtime, false)).collect();
            pool.made -= over.len();
            pool.watched = pool.made > 0;
            (over, !pool.watched)
        };
        for (runtime, _) in over {
            runtime.shutdown_background();
        }
        if was_last {
            return;
        }
    }
}
