//! A lock or a semaphore around a service.

use super::{Answering, response, take_ready};
use crate::{
    error::{Error, ErrorKind},
    handles::LockRequest,
    lease::while_held,
    locker::Locker,
};
use http::{Request, Response};
use std::{
    fmt,
    pin::pin,
    task::{Context, Poll},
};
use tower_layer::Layer;
use tower_service::Service;

/// Holds something while a request is served: by default the lock that `key` names, so that requests with equal
/// keys are served one after the other, on all machines.
///
/// Who does not get it in time is answered `503 Service Unavailable` with `Retry-After`. It is held until the
/// response's head is there; its body may still be on its way. When the lease is lost meanwhile, the handler is
/// dropped and the answer is `503`.
///
/// One thing can be written in several ways (`/order/7`, `/order/07`, `/order/%37`): a lock on it is named after what the
/// handler makes of the request, not after the path as it came.
///
/// ```
/// # use {http::Request, locker_runtime::{Locker, tower::LockLayer}, std::time::Duration};
/// // at most 5 requests per path at a time, waited for up to a second
/// let by_path = |locker: &Locker, request: &Request<String>| {
///     locker.semaphore(request.uri().path(), 5).timeout(Duration::from_secs(1))
/// };
/// let layer = LockLayer::with(Locker::memory(), by_path);
/// # drop(layer);
/// ```
#[derive(Clone)]
pub struct LockLayer<K> {
    locker: Locker,
    ask: K,
}

impl LockLayer<()> {
    /// The lock of the name that `key` gives, with the locker's defaults.
    pub fn new<B, K>(
        locker: Locker,
        key: K,
    ) -> LockLayer<impl Fn(&Locker, &Request<B>) -> LockRequest + Clone + Send + Sync + 'static>
    where
        K: Fn(&Request<B>) -> String + Clone + Send + Sync + 'static,
    {
        LockLayer { locker, ask: move |locker: &Locker, request: &Request<B>| locker.lock(&key(request)) }
    }

    /// Whatever `ask` asks the locker for: a lock with other settings, a read lock, permits of a semaphore.
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

/// A service behind a [`LockLayer`].
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
    type Future = Answering<Response<R>, S::Error>;

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
            // An error of the release does not undo what was served; it is told by the diagnostics.
            let released = guard.leave().await;
            match (response, released) {
                (Some(response), _) => response,
                (None, Err(error)) => Ok(response::refuse(&error)),
                (None, Ok(())) => Ok(response::refuse(&lost())),
            }
        })
    }
}

fn lost() -> crate::error::Error {
    Error::new(ErrorKind::Lost, "the lease ended before the request was served")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
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

    /// Its executor stands still until the lease is over; then it says that it has gone on.
    #[derive(Clone, Default)]
    struct StandsStill(Arc<AtomicBool>);

    impl Service<Request<()>> for StandsStill {
        type Response = Response<()>;
        type Error = Infallible;
        type Future = Answering<Response<()>, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            let (over, has_gone_on) = (Timestamp::now() + LEASE, Arc::clone(&self.0));
            Box::pin(async move {
                while Timestamp::now() < over {
                    std::thread::yield_now();
                }
                yield_now().await;
                has_gone_on.store(true, SeqCst);
                Ok(Response::new(()))
            })
        }
    }

    #[tokio::test]
    async fn a_handler_that_waits_does_not_go_on_after_its_lease() {
        let ask = |locker: &Locker, _: &Request<()>| locker.lock("a").lease(LEASE).renew(false);
        let handler = StandsStill::default();
        let mut service = LockLayer::with(Locker::memory(), ask).layer(handler.clone());
        let response = service.call(Request::new(())).await.unwrap();
        assert_eq!(response.status(), http::StatusCode::SERVICE_UNAVAILABLE);
        assert!(!handler.0.load(SeqCst));
    }
}
