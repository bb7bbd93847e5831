//! Calls inside a body that would wait for the hold of that body at the server.

use crate::support::{connect, in_time, nobody_is_left, waiting};
use locker::{ErrorKind, Locker, Result, lock_on_argument};
use locker_harness::RedisServer;
use std::future::{Future, ready};

#[lock_on_argument(expr = "1m", name = "called", args(id), locker = locker)]
async fn asynchronous(locker: &Locker, id: u32, body: impl Future<Output = Result<()>>) -> Result<()> {
    body.await
}

#[lock_on_argument(expr = "1m", name = "called", args(id), locker = locker)]
fn plain(locker: &Locker, id: u32, body: impl FnOnce() -> Result<()>) -> Result<()> {
    body()
}

/// Nothing was sent for the inner call. Lockers with the same URL and options share a store.
#[tokio::test]
async fn call_inside_its_own_body_is_told() {
    let Some(server) = RedisServer::start() else { return };
    let (locker, same) = (connect(&server.url()).await, connect(&server.url()).await);
    let told = |call: Result<()>| {
        let error = call.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
        let key = error.key().unwrap();
        assert_eq!((waiting(&server, key), server.ask("EXISTS", &[key])), (0, 1), "the body holds it");
        Ok(())
    };
    for inner in [&locker, &same] {
        let inside = async {
            told(asynchronous(inner, 1, async { unreachable!() }).await)?;
            tokio::task::yield_now().await;
            told(inner.lock_on("called", &[&1]).acquire().await.map(drop))
        };
        in_time("the calls", asynchronous(&locker, 1, inside)).await.unwrap();
        plain(&locker, 1, || told(plain(inner, 1, || unreachable!()))).unwrap();
    }
    in_time("the next call", asynchronous(&locker, 1, ready(Ok(())))).await.unwrap();
    locker.settled().await;
    nobody_is_left(&server);
}
