//! A layer that limits the rate of requests.

use super::{ResponseFuture, response, take_ready};
use crate::locker::Locker;
use http::{Request, Response};
use locker_core::{error::Error, primitives::rate_limiter::Quota};
use std::{
    fmt,
    task::{Context, Poll},
    time::Duration,
};
use tower_layer::Layer;
use tower_service::Service;

/// A layer that admits requests up to a [`Quota`] per key, for example per client.
///
/// Each key has the limiter that [`Locker::rate_limiter`] returns for that name, so all processes that use the store
/// share it. Other requests get `429 Too Many Requests` with `Retry-After`. If the store cannot be reached, requests
/// get `503 Service Unavailable`: no request bypasses the limit. [`tower`](crate::tower) lists all statuses.
///
/// Responses carry `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers) and the older
/// `RateLimit-Limit`, `-Remaining` and `-Reset`. Behind several of these layers they describe the limit with the fewest
/// remaining tokens.
///
/// # Cancel safety
/// When the response future is dropped, a waiting request gives up its reservation.
///
/// # Examples
///
/// One request a minute per API key:
///
/// ```
/// use http::{Request, StatusCode};
/// use locker_runtime::{Locker, Quota, tower::RateLimitLayer};
/// use std::time::Duration;
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// # #[derive(Clone)]
/// # struct Handler;
/// # impl tower_service::Service<Request<()>> for Handler {
/// #     type Response = http::Response<String>;
/// #     type Error = std::convert::Infallible;
/// #     type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
/// #         std::task::Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: Request<()>) -> Self::Future {
/// #         std::future::ready(Ok(http::Response::default()))
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let by_client = |request: &Request<()>| format!("api {:?}", request.headers().get("x-api-key"));
/// let quota = Quota::gcra(1, Duration::from_secs(60));
/// let mut service = RateLimitLayer::new(Locker::memory(), quota, by_client).layer(Handler);
///
/// let admitted = service.call(Request::new(())).await.unwrap();
/// assert_eq!(admitted.status(), StatusCode::OK);
/// assert_eq!(admitted.headers()["ratelimit-remaining"], "0");
///
/// let refused = service.call(Request::new(())).await.unwrap();
/// assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert!(refused.headers().contains_key("retry-after"));
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimitLayer<K> {
    locker: Locker,
    quota: Quota,
    key: K,
    timeout: Duration,
}

impl<K> RateLimitLayer<K> {
    /// Creates a layer that limits the requests of each `key(request)` to `quota`.
    pub fn new(locker: Locker, quota: Quota, key: K) -> Self {
        Self { locker, quota, key, timeout: Duration::ZERO }
    }

    /// Sets how long a request may wait to be admitted. Default 0: a request over the limit is refused immediately.
    ///
    /// A value longer than 10 years, except `Duration::MAX`, fails each request with status 500.
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

/// A service wrapped by a [`RateLimitLayer`].
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
    type Future = ResponseFuture<Response<R>, S::Error>;

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
                    response::set_admitted(response.headers_mut(), &quota, &admission);
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
        response::set_fields(response.headers_mut(), quota, 0, after);
    }
    response
}
