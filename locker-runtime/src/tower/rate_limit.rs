//! A rate limit in front of a service.

use super::{Answering, response, take_ready};
use crate::{error::Error, locker::Locker, primitives::rate_limiter::Quota};
use http::{Request, Response};
use std::{
    fmt,
    task::{Context, Poll},
    time::Duration,
};
use tower_layer::Layer;
use tower_service::Service;

/// Lets through what a [`Quota`] allows for each key, and answers the rest with `429 Too Many Requests` and
/// `Retry-After`. What is let through carries the `RateLimit` header fields of the IETF draft.
///
/// `key` names whom a request belongs to: the limiter is the one that [`Locker::rate_limiter`] has under that name.
/// A store that cannot be reached answers `503 Service Unavailable`: nothing passes unseen.
///
/// ```
/// # use {http::Request, locker_runtime::{Locker, Quota, tower::RateLimitLayer}, std::time::Duration};
/// let by_key = |request: &Request<String>| format!("api {:?}", request.headers().get("x-api-key"));
/// let layer = RateLimitLayer::new(Locker::memory(), Quota::gcra(100, Duration::from_secs(1)), by_key);
/// # drop(layer);
/// ```
#[derive(Clone)]
pub struct RateLimitLayer<K> {
    locker: Locker,
    quota: Quota,
    key: K,
    timeout: Duration,
}

impl<K> RateLimitLayer<K> {
    /// A limit of `quota` for each name that `key` gives.
    pub fn new(locker: Locker, quota: Quota, key: K) -> Self {
        Self { locker, quota, key, timeout: Duration::ZERO }
    }

    /// How long a request may wait for its turn before it is refused. Default zero: it does not wait.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl<K> fmt::Debug for RateLimitLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("quota", &self.quota).finish_non_exhaustive()
    }
}

impl<S, K: Clone> Layer<S> for RateLimitLayer<K> {
    type Service = RateLimit<S, K>;

    fn layer(&self, inner: S) -> RateLimit<S, K> {
        RateLimit { inner, layer: self.clone() }
    }
}

/// A service behind a [`RateLimitLayer`].
#[derive(Clone)]
pub struct RateLimit<S, K> {
    inner: S,
    layer: RateLimitLayer<K>,
}

impl<S: fmt::Debug, K> fmt::Debug for RateLimit<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

impl<S, K, B, R> Service<Request<B>> for RateLimit<S, K>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    K: Fn(&Request<B>) -> String,
    B: Send + 'static,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Answering<Response<R>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let RateLimitLayer { locker, quota, key, timeout } = &self.layer;
        let limiter = locker.rate_limiter(&key(&request), *quota).timeout(*timeout);
        let (mut inner, quota) = (take_ready(&mut self.inner), *quota);
        Box::pin(async move {
            match limiter.acquire().await {
                Ok(admission) => {
                    let mut response = inner.call(request).await?;
                    response::tell_admitted(response.headers_mut(), &quota, &admission);
                    Ok(response)
                }
                Err(error) => Ok(refuse(&error, &quota)),
            }
        })
    }
}

fn refuse<R: Default>(error: &Error, quota: &Quota) -> Response<R> {
    let mut response = response::refuse(error);
    if let Some(after) = error.retry_after() {
        response::tell(response.headers_mut(), quota, 0, after);
    }
    response
}
