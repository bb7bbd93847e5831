//! Layers that put a lock or a rate limit in front of an HTTP service: for axum, hyper, tonic and everything else that
//! uses [`tower`](https://docs.rs/tower) services.
//!
//! A request that is not admitted never reaches the inner service. If a lock is lost while its request is served, the
//! future of the inner service is dropped. In both cases the response has no body:
//!
//! | error | status | `Retry-After` |
//! | --- | --- | --- |
//! | `Limited` | 429 | time until the next admission, at least 1 s |
//! | `TimedOut`, `RetriesExhausted`, `Deadlock`, `Unavailable` | 503 | 1 s, or more if the error says so |
//! | `Lost` and others | 500 | none |
//!
//! `Lost` means that a handler was cancelled between two steps, so its outcome is unknown. Clients and proxies repeat a
//! request that got 503; a repetition of this one could do the first steps twice. So the status is 500.

mod lock;
mod rate_limit;
mod response;

pub use lock::{Lock, LockLayer};
pub use rate_limit::{RateLimit, RateLimitLayer};

use std::{future::Future, pin::Pin};

/// The future of a response: that of the inner service, or a refusal without a body.
type ResponseFuture<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

/// Takes the service that is ready and leaves a clone, which must become ready itself.
fn take_ready<S: Clone>(service: &mut S) -> S {
    let clone = service.clone();
    std::mem::replace(service, clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{handles::LockRequest, locker::Locker};
    use http::Request;
    use locker_core::primitives::rate_limiter::Quota;
    use std::time::Duration;
    use tower_layer::Layer;

    #[test]
    fn services_implement_debug_for_any_key() {
        let ask = |locker: &Locker, _: &Request<()>| -> LockRequest { locker.lock("a") };
        let shown = format!("{:?}", LockLayer::with(Locker::memory(), ask).layer("inner"));
        assert!(shown.starts_with("Lock { inner: \"inner\""), "{shown}");
        let quota = Quota::fixed_window(1, Duration::from_secs(1));
        let key = |_: &Request<()>| String::new();
        let shown = format!("{:?}", RateLimitLayer::new(Locker::memory(), quota, key).layer("inner"));
        assert!(shown.starts_with("RateLimit { inner: \"inner\""), "{shown}");
    }
}
