//! Rate limits and locks in front of HTTP services that speak [`tower`](https://docs.rs/tower): axum, hyper, tonic.

mod lock;
mod rate_limit;
mod response;

pub use lock::{Lock, LockLayer};
pub use rate_limit::{RateLimit, RateLimitLayer};

use std::{future::Future, pin::Pin};

/// What the services answer with: a response of the inner service, or a refusal without a body.
type Answering<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

/// Takes the service that is ready, and leaves a clone that becomes ready on its own.
fn take_ready<S: Clone>(service: &mut S) -> S {
    let clone = service.clone();
    std::mem::replace(service, clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockRequest, Locker, Quota};
    use http::Request;
    use std::time::Duration;
    use tower_layer::Layer;

    #[test]
    fn services_can_be_shown_whatever_their_key_is() {
        let ask = |locker: &Locker, _: &Request<()>| -> LockRequest { locker.lock("a") };
        let shown = format!("{:?}", LockLayer::with(Locker::memory(), ask).layer("inner"));
        assert!(shown.starts_with("Lock { inner: \"inner\""), "{shown}");
        let quota = Quota::fixed_window(1, Duration::from_secs(1));
        let key = |_: &Request<()>| String::new();
        let shown = format!("{:?}", RateLimitLayer::new(Locker::memory(), quota, key).layer("inner"));
        assert!(shown.starts_with("RateLimit { inner: \"inner\""), "{shown}");
    }
}
