//! A layer that holds a lock or a permit while a request is served.

use super::{ResponseFuture, response, take_ready};
use crate::{handles::LockRequest, lease::while_held, locker::Locker};
use http::{Request, Response};
use locker_core::error::{Error, ErrorKind};
use std::{
    fmt,
    pin::pin,
    task::{Context, Poll},
};
use tower_layer::Layer;
use tower_service::Service;

/// A layer that holds a lock while a request is served: requests with equal keys are served one after the other, by all
/// processes that use the store. With [`LockLayer::with`] it holds a permit of a semaphore or any other hold.
///
/// The lock is held until the inner service returns the head of its response; the body may still be in transfer. If the
/// lease is lost before that, the inner service's future is dropped and the response is `500 Internal Server Error`:
/// the outcome is unknown. If the lock is not acquired within its timeout, the response is `503 Service Unavailable`
/// with `Retry-After`. [`tower`](crate::tower) lists all statuses.
///
/// Different paths may name the same resource (`/order/7`, `/order/07`, `/order/%37`). Build the key from the parsed
/// request, not from the raw path.
///
/// # Cancel safety
/// When the response future is dropped, a waiting request leaves the queue, and a held lock is released in the
/// background.
///
/// # Examples
///
/// At most 5 requests per path at a time, each of which waits up to a second:
///
/// ```
/// use http::{Request, StatusCode};
/// use locker_runtime::{Locker, tower::LockLayer};
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
/// let by_path = |locker: &Locker, request: &Request<()>| {
///     locker.semaphore(request.uri().path(), 5).timeout(Duration::from_secs(1))
/// };
/// let mut service = LockLayer::with(Locker::memory(), by_path).layer(Handler);
/// let response = service.call(Request::new(())).await.unwrap();
/// assert_eq!(response.status(), StatusCode::OK);
/// # }
/// ```
#[derive(Clone)]
pub struct LockLayer<K> {
    locker: Locker,
    ask: K,
}

impl LockLayer<()> {
    /// Creates a layer that holds the lock named `key(request)` with the settings of `locker`.
    pub fn new<B, K>(
        locker: Locker,
        key: K,
    ) -> LockLayer<impl Fn(&Locker, &Request<B>) -> LockRequest + Clone + Send + Sync + 'static>
    where
        K: Fn(&Request<B>) -> String + Clone + Send + Sync + 'static,
    {
        LockLayer {
            locker,
            ask: move |locker: &Locker, request: &Request<B>| locker.lock(&key(request)).without_place(),
        }
    }

    /// Creates a layer that holds what `ask` requests from `locker`: a lock with other settings, a read lock or permits
    /// of a semaphore.
    pub fn with<K>(locker: Locker, ask: K) -> LockLayer<K> {
        LockLayer { locker, ask }
    }
}

impl<K> fmt::Debug for LockLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer").field("locker", &self.locker).finish_non_exhaustive()
    }
}

impl<S, K: Clone> Layer<S> for LockLayer<K> {
    type Service = Lock<S, K>;

    fn layer(&self, inner: S) -> Lock<S, K> {
        Lock { inner, layer: self.clone() }
    }
}

/// A service wrapped by a [`LockLayer`].
#[derive(Clone)]
pub struct Lock<S, K> {
    inner: S,
    layer: LockLayer<K>,
}

impl<S: fmt::Debug, K> fmt::Debug for Lock<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

impl<S, K, B, R> Service<Request<B>> for Lock<S, K>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    K: Fn(&Locker, &Request<B>) -> LockRequest,
    B: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<Response<R>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let wanted = (self.layer.ask)(&self.layer.locker, &request);
        let mut inner = take_ready(&mut self.inner);
        Box::pin(async move {
            let guard = match wanted.acquire().await {
                Ok(guard) => guard,
                Err(error) => return Ok(response::refuse(&error)),
            };
            let response =
                while_held(pin!(inner.call(request)), pin!(guard.lost()), || guard.is_held()).await;
            // An error of the release does not undo the response; it is logged.
            let released = guard.release_bounded().await;
            match (response, released) {
                (Some(response), _) => response,
                (None, Err(error)) => Ok(response::refuse(&error)),
                (None, Ok(())) => Ok(response::refuse(&lost())),
            }
        })
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Lost, "the lease ended before the request was served")
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::clock::Timestamp;
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::SeqCst},
        },
        time::Duration,
    };
    use tokio::task::yield_now;

    const LEASE: Duration = Duration::from_millis(20);

    /// Blocks its executor until the lease is over, and records whether it is polled after that.
    #[derive(Clone, Default)]
    struct BlockingHandler(Arc<AtomicBool>);

    impl Service<Request<()>> for BlockingHandler {
        type Response = Response<()>;
        type Error = Infallible;
        type Future = ResponseFuture<Response<()>, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            let (over, went_on) = (Timestamp::now() + LEASE, Arc::clone(&self.0));
            Box::pin(async move {
                while Timestamp::now() < over {
                    std::thread::yield_now();
                }
                yield_now().await;
                went_on.store(true, SeqCst);
                Ok(Response::new(()))
            })
        }
    }

    #[tokio::test]
    async fn handler_is_dropped_after_its_lease() {
        let ask = |locker: &Locker, _: &Request<()>| locker.lock("a").lease(LEASE).renew(false);
        let handler = BlockingHandler::default();
        let mut service = LockLayer::with(Locker::memory(), ask).layer(handler.clone());
        let response = service.call(Request::new(())).await.unwrap();
        assert_eq!(response.status(), http::StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!response.headers().contains_key(http::header::RETRY_AFTER));
        assert!(!handler.0.load(SeqCst));
    }
}
