//! What the tests start and break: real Redis servers, and the network between them and a client. And how they wait.

mod processors;
mod proxy;
mod redis_server;

pub use processors::in_both_places;
pub use proxy::{Fault, Proxy};
pub use redis_server::{RedisServer, Signal, free_port};

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Longer than anything takes that works.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// Between two looks at a condition: nothing tells of it, and who looks all the time keeps it from coming about.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// The value of `future`; fails when it takes longer than anything that works.
///
/// # Panics
/// When it takes longer.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let value = tokio::time::timeout(GENEROUS, future).await;
    value.unwrap_or_else(|_| panic!("waited {GENEROUS:?} for: {what}"))
}

/// Waits until `condition` holds; fails after a generous time.
///
/// # Panics
/// When it never holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    in_time(what, async {
        while !condition().await {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    })
    .await;
}

/// What `find` finds, for who has no runtime; fails after a generous time.
///
/// # Panics
/// When nothing was found.
pub fn eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(started.elapsed() < GENEROUS, "waited {GENEROUS:?} for: {what}");
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Says why a test does nothing here, or fails it where everything has to be there (`CI=true`).
///
/// # Panics
/// With `CI=true`.
#[must_use]
pub fn missing<T>(what: &str) -> Option<T> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{what}");
    eprintln!("skipped: {what}");
    None
}
