//! Rate limits and locks in front of HTTP services that speak [`tower`](https://docs.rs/tower): axum, hyper, tonic.

mod answer;
mod lock;
mod rate_limit;

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
