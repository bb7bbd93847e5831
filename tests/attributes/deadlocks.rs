//! Functions that call each other with their locks taken in different orders. Their bodies are known to hold them.

use crate::support::{Done, Failure, LOCKER};
use locker::{ErrorKind, lock_on_argument};
use std::{
    future::Future,
    sync::{self, Arc},
    thread,
};
use tokio::sync::Barrier;

#[lock_on_argument(expr = "1h", name = "deadlocks", args(id), locker = LOCKER, timeout = "1m")]
fn plain(id: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

#[lock_on_argument(expr = "1h", name = "deadlocks", args(id), locker = LOCKER, timeout = "1m")]
async fn asynchronous(id: u32, body: impl Future<Output = Done>) -> Done {
    body.await
}

fn assert_one_failed(done: [Done; 2]) {
    let failed: Vec<_> = done.into_iter().filter_map(Done::err).collect();
    let [Failure::Locker(error)] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!((error.kind(), error.function()), (ErrorKind::Deadlock, Some("deadlocks")), "{error}");
    assert_eq!(error.message().matches("deadlocks (").count(), 2, "{error}");
}

#[tokio::test]
async fn nested_async_functions_are_found() {
    let both = Arc::new(Barrier::new(2));
    let nested = |outer, inner| {
        let both = Arc::clone(&both);
        tokio::spawn(asynchronous(outer, async move {
            both.wait().await;
            asynchronous(inner, async { Ok(()) }).await
        }))
    };
    let (one, other) = (nested(1, 2), nested(2, 1));
    assert_one_failed([one.await.unwrap(), other.await.unwrap()]);
}

#[test]
fn nested_plain_functions_are_found() {
    let both = sync::Barrier::new(2);
    let nested = |outer, inner| {
        plain(outer, || {
            both.wait();
            plain(inner, || Ok(()))
        })
    };
    thread::scope(|scope| {
        let one = scope.spawn(|| nested(3, 4));
        let other = nested(4, 3);
        assert_one_failed([one.join().unwrap(), other]);
    });
}

/// A task that a body has started may go on without it.
#[tokio::test]
async fn task_of_a_body_is_no_part_of_it() {
    let (held, inner) = (LOCKER.lock_on("deadlocks", &[&6]).acquire().await.unwrap(), Barrier::new(2));
    let mut waiting = None;
    let waits = asynchronous(5, async {
        waiting = Some(tokio::spawn(asynchronous(6, async { Ok(()) })));
        inner.wait().await;
        Ok(())
    });
    let circle = async {
        let wait =
            LOCKER.lock_on("deadlocks", &[&5]).timeout(std::time::Duration::from_secs(5)).holding(&held);
        let error = wait.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        inner.wait().await;
    };
    let (done, ()) = tokio::join!(waits, circle);
    done.unwrap();
    drop(held);
    waiting.unwrap().await.unwrap().unwrap();
}
