//! Futures that are dropped at each of their await points.

use locker::{Guard, Locker, Quota, Result, stores::Memory};
use locker_harness::{ScriptedStore, Step, in_time, until};
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// Polls at most `polls` times and then drops the future.
fn poll_and_drop<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    (0..polls).find_map(|_| match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    })
}

async fn unused(store: &Memory) {
    until("no holder and no waiter", async || store.users() == 0).await;
}

const MOST_POLLS: usize = 12;

/// Every call waits once before it is carried out and once before its reply arrives, as across a network.
fn distant() -> (Memory, Locker) {
    let (store, once) = (ScriptedStore::remote(), || Box::pin(tokio::task::yield_now()));
    store.on_call(move |_| Step::Delay(once(), once()));
    (store.memory().clone(), Locker::builder().store(store).build_blocking().unwrap())
}

#[tokio::test]
async fn free_lock_acquire_may_be_dropped_anywhere() {
    for polls in 0..MOST_POLLS {
        let (store, locker) = distant();
        drop(poll_and_drop(locker.lock("a").acquire(), polls));
        unused(&store).await;
        locker.lock("a").acquire().await.expect("free again").release().await.unwrap();
    }
}

#[tokio::test]
async fn held_lock_acquire_may_be_dropped_anywhere() {
    for polls in 0..MOST_POLLS {
        let (store, locker) = distant();
        let guard = locker.lock("a").acquire().await.unwrap();
        drop(poll_and_drop(locker.lock("a").acquire(), polls));
        guard.release().await.unwrap();
        unused(&store).await;
    }
}

#[tokio::test]
async fn acquire_may_be_dropped_during_its_hand_off() {
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
async fn lost_may_be_dropped_and_awaited_again() {
    let (_store, locker) = distant();
    let guard = locker.lock("a").lease(Duration::from_secs(2)).renew(false).acquire().await.unwrap();
    for polls in 0..3 {
        assert!(poll_and_drop(guard.lost(), polls).is_none());
    }
    in_time("the loss", guard.lost()).await;
}

#[tokio::test]
async fn try_acquire_may_be_dropped_anywhere() {
    for polls in 0..MOST_POLLS {
        let (store, locker) = distant();
        drop(poll_and_drop(locker.lock("a").try_acquire(), polls));
        unused(&store).await;
    }
}

/// Drops the future of `ask` at each await point, and checks that no hold and no waiter is left.
async fn leaves_nobody_behind<T>(ask: impl AsyncFn(&Locker) -> T) {
    for polls in 0..2 * MOST_POLLS {
        let (store, locker) = distant();
        drop(poll_and_drop(ask(&locker), polls));
        unused(&store).await;
    }
}

#[tokio::test]
async fn several_locks_at_once_may_be_dropped_anywhere() {
    leaves_nobody_behind(async |locker| locker.lock_all(["a", "b", "c"]).acquire().await).await;
    leaves_nobody_behind(async |locker| locker.lock_all(["a", "b"]).try_acquire().await).await;
    leaves_nobody_behind(async |locker| {
        let guards = locker.lock_all(["a", "b"]).acquire().await.unwrap();
        guards.release().await
    })
    .await;
}

/// Also the acquire of a reader or a writer.
#[tokio::test]
async fn permit_acquire_may_be_dropped_anywhere() {
    leaves_nobody_behind(async |locker| {
        let _held = locker.semaphore("a", 1).acquire().await.unwrap();
        locker.semaphore("a", 1).acquire().await
    })
    .await;
    leaves_nobody_behind(async |locker| {
        let _held = locker.read_lock("a").acquire().await.unwrap();
        locker.write_lock("a").acquire().await
    })
    .await;
}

/// Its reservation is given back.
#[tokio::test]
async fn limiter_acquire_may_be_dropped_anywhere() {
    let quota = Quota::token_bucket(1, Duration::from_secs(3600));
    leaves_nobody_behind(async |locker| {
        let limiter = locker.rate_limiter("a", quota).timeout(Duration::MAX);
        limiter.acquire().await.unwrap();
        limiter.acquire().await
    })
    .await;
}

/// Waits for an event, a latch, a barrier and a watchdog.
#[tokio::test]
async fn other_waits_may_be_dropped_anywhere() {
    let long = Duration::from_secs(3600);
    leaves_nobody_behind(async |locker| locker.event("a").wait(long).await).await;
    leaves_nobody_behind(async |locker| locker.latch("a", 2).wait(long).await).await;
    leaves_nobody_behind(async |locker| locker.barrier("a", 2).wait(long).await).await;
    leaves_nobody_behind(async |locker| {
        locker.watchdog("a").kick(long).await.unwrap();
        locker.watchdog("a").wait(long).await
    })
    .await;
}
