//! The stores under test, and helpers of the laws.

use futures_util::future::{Either, select};
use locker::Locker;
use locker_harness::RedisServer;
use std::{
    fmt::Debug,
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

pub(crate) use locker_harness::{GENEROUS, in_time, until};

pub(crate) const SHORT: Duration = Duration::from_millis(120);

/// Ends before a waiter rechecks on its own.
pub(crate) const SOON: Duration = Duration::from_secs(4);

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A locker on a store that lasts as long as this value.
pub(crate) struct Opened {
    pub(crate) locker: Locker,
    _server: Option<RedisServer>,
}

pub(crate) async fn memory() -> Option<Opened> {
    Some(Opened { locker: Locker::memory(), _server: None })
}

/// The server of the environment variable `LOCKER_TEST_REDIS_URL`, else a new one.
pub(crate) async fn redis() -> Option<Opened> {
    let (url, server) = match std::env::var("LOCKER_TEST_REDIS_URL") {
        Ok(url) => (url, None),
        Err(_) => RedisServer::start().map(|server| (server.url(), Some(server)))?,
    };
    let locker = Locker::connect(&url).await.expect("a connection to the test's server");
    Some(Opened { locker, _server: server })
}

/// A name that no other test uses.
pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test {} {}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Starts a call that has to wait, and returns when the store has it in its queue.
pub(crate) async fn queued<F: Future<Output: Debug>>(locker: &Locker, call: F) -> Pin<Box<F>> {
    // A store across the network has the request once it has replied to later ones on the same connection. The first
    // request of a kind may be sent twice.
    let later = Box::pin(async {
        for _ in 0..2 {
            locker.lock(&fresh_name()).acquire().await.unwrap().release().await.unwrap();
        }
    });
    match select(Box::pin(call), later).await {
        Either::Left((answer, _)) => panic!("the call did not wait: {answer:?}"),
        Either::Right(((), call)) => call,
    }
}

/// Waits until `count` callers wait at a name. The cancel of a caller may arrive a little later.
pub(crate) async fn waiting_at(locker: &Locker, kind: &str, name: &str, count: u64) {
    let (admin, key) = (locker.admin(), locker.admin().key(kind, name));
    in_time("the expected number of waiters", async {
        while admin.inspect(&key).await.unwrap().map_or(0, |state| state.waiting) != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
