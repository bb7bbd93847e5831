//! Runtimes lent to threads that block, so that a thread waits for the answer itself instead of being woken by another
//! that did.

use crate::{
    background,
    clock::Timestamp,
    sync::{Mutex, lock},
};
use std::{
    ops::Deref,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// How many there are at most. A thread keeps one until its call is answered, also while it waits in a queue; the other
/// threads wait for the background thread.
const MOST: usize = 8;

/// Calls that come more seldom gain nothing worth a connection.
const OFTEN: Duration = Duration::from_millis(100);

/// One that nobody has used for so long is given up.
const IDLE: Duration = Duration::from_secs(5);

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), made: 0, watched: false });

/// When one was last wished for, in microseconds.
static LAST: AtomicU64 = AtomicU64::new(0);

struct Pool {
    /// The one that was used last comes last.
    idle: Vec<(Timestamp, Runtime)>,
    made: usize,
    watched: bool,
}

/// A runtime of a single thread, until dropped that of the thread that has this.
pub(super) struct Lent(Option<Runtime>);

impl Lent {
    /// `None`: none is left, or they are not worth it.
    pub(super) fn borrow() -> Option<Self> {
        let now = Timestamp::now();
        let last = Timestamp::from_micros(LAST.swap(now.as_micros(), Ordering::Relaxed));
        if now.since(last) > OFTEN {
            return None;
        }
        {
            let mut pool = lock(&POOL);
            if let Some((_, runtime)) = pool.idle.pop() {
                return Some(Self(Some(runtime)));
            }
            if pool.made >= MOST {
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
        let Some(runtime) = self.0.take() else { return };
        let mut pool = lock(&POOL);
        pool.idle.push((Timestamp::now(), runtime));
        if !std::mem::replace(&mut pool.watched, true) {
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
            let now = Timestamp::now();
            let fresh = pool.idle.partition_point(|(since, _)| now.since(*since) >= IDLE);
            let over: Vec<_> = pool.idle.drain(..fresh).collect();
            pool.made -= over.len();
            pool.watched = pool.made > 0;
            (over, !pool.watched)
        };
        over.into_iter().for_each(|(_, runtime)| runtime.shutdown_background());
        if was_last {
            return;
        }
    }
}
