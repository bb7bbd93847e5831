//! What the tests start and break: real Redis servers, and the network between them and a client.

mod proxy;
mod redis_server;

pub use proxy::{Fault, Proxy};
pub use redis_server::{RedisServer, Signal, free_port};

use std::time::{Duration, Instant};

/// Longer than anything takes that works.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// What `find` finds; fails after a generous time.
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
        std::thread::sleep(Duration::from_millis(2));
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
