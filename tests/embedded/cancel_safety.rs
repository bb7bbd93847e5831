//! Futures dropped at every point at which they wait.

use locker::{
    Guard, Key, Locker, Pushes, Result,
    primitives::Request,
    store::{Calling, Store},
    stores::Memory,
};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// The embedded store with a network before and behind it: every call waits once before it is carried out and
/// once before the answer is back.
#[derive(Debug)]
struct Distant(Memory);

async fn once_pending() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Store for Distant {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        Calling::Pending(Box::pin(async move {
            once_pending().await;
            let answer = self.0.call(key, request).await;
            once_pending().await;
            answer
        }))
    }

    fn pushes(&self) -> &Pushes {
        self.0.pushes()
    }
}

/// Polls at most `polls` times and then drops the future.
fn poll_and_drop<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    (0..polls).find_map(|_| match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    })
}

async fn unused(store: &Memory) {
    let gone = async {
        while store.users() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("nobody to hold or wait");
}

const MOST_POLLS: usize = 12;

fn distant() -> (Memory, Locker) {
    let store = Memory::new();
    let locker = Locker::builder().store(Distant(store.clone())).build_blocking().unwrap();
    (store, locker)
}

#[tokio::test]
async fn acquire_on_a_free_lock_may_be_dropped_anywhere() {
    for polls in 0..MOST_POLLS {
        let (store, locker) = distant();
        drop(poll_and_drop(locker.lock("a").acquire(), polls));
        unused(&store).await;
        locker.lock("a").acquire().await.expect("free again").release().await.unwrap();
    }
}

#[tokio::test]
async fn acquire_on_a_held_lock_may_be_dropped_anywhere() {
    for polls in 0..MOST_POLLS {
        let (store, locker) = distant();
        let guard = locker.lock("a").acquire().await.unwrap();
        drop(poll_and_drop(locker.lock("a").acquire(), polls));
        guard.release().await.unwrap();
        unused(&store).await;
    }
}

#[tokio::test]
async fn acquire_may_be_dropped_anywhere_while_it_is_being_handed_the_lock() {
    for polls in 0..MOST_POLLS {
        let (store, locker) = distant();
        let guard = locker.lock("a").acquire().await.unwrap();
        let mut acquire = Box::pin(locker.lock("a").acquire());
        while store.users() < 2 {
            assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        guard.release().await.unwrap();
        drop(poll_and_drop(acquire, polls));
        unused(&store).await;
    }
}

#[tokio::test]
async fn release_may_be_dropped_anywhere() {
    for polls in 0..MOST_POLLS {
        let (store, locker) = distant();
        let guard: Guard = locker.lock("a").acquire().await.unwrap();
        let _: Option<Result<()>> = poll_and_drop(guard.release(), polls);
        unused(&store).await;
    }
}

#[tokio::test]
async fn waiting_for_a_loss_may_be_dropped_and_begun_again() {
    let (_store, locker) = distant();
    let guard = locker.lock("a").lease(Duration::from_millis(100)).renew(false).acquire().await.unwrap();
    for polls in 0..3 {
        assert!(poll_and_drop(guard.lost(), polls).is_none());
    }
    tokio::time::timeout(Duration::from_secs(30), guard.lost()).await.expect("the loss is told");
}

#[tokio::test]
async fn try_acquire_may_be_dropped_anywhere() {
    for polls in 0..MOST_POLLS {
        let (store, locker) = distant();
        drop(poll_and_drop(locker.lock("a").try_acquire(), polls));
        unused(&store).await;
    }
}
