//! Many names, many waiters.

use crate::alone::am_i;
use locker::{Guard, Locker, stores::Memory};
use locker_harness::{in_time, until};
use std::{future::Future, pin::Pin, task::Poll, time::Duration};

/// Longer than a busy machine takes for any of these tests.
const HOUR: Duration = Duration::from_secs(3600);

fn on(store: &Memory) -> Locker {
    Locker::builder().store(store.clone()).build_blocking().unwrap()
}

#[test]
fn a_million_names_leave_nothing() {
    let store = Memory::new();
    let locker = on(&store);
    for batch in 0..10 {
        let guards: Vec<Guard> = (0..100_000)
            .map(|number| {
                locker.lock(&format!("name {batch} {number}")).lease(HOUR).acquire_blocking().unwrap()
            })
            .collect();
        assert_eq!(store.len(), 100_000);
        for guard in guards {
            guard.release_blocking().unwrap();
        }
        assert!(store.is_empty());
    }
}

#[test]
fn additions_leave_nothing_but_their_sum() {
    let store = Memory::new();
    let counter = on(&store).counter("hits");
    for by in [1, -1] {
        for _ in 0..1_000 {
            counter.add_blocking(by).unwrap();
        }
    }
    assert!(store.is_empty(), "a counter at 0 has no entry");
}

/// Returns the number of threads of this process, as the kernel counts them.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

async fn queue(acquire: &mut Pin<Box<impl Future>>) {
    std::future::poll_fn(|context| {
        assert!(acquire.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// They have no threads and no tasks, and are served in order. Other tests of this process would start and end threads.
#[tokio::test]
async fn hundred_thousand_waiters_cost_only_memory() {
    const WAITERS: usize = 100_000;
    if !am_i("crowds::hundred_thousand_waiters_cost_only_memory", None) {
        return;
    }
    let store = Memory::new();
    let locker = on(&store);
    let first = locker.lock("hot").acquire().await.unwrap();
    let mut waiters = Vec::with_capacity(WAITERS);
    let before = threads();
    for _ in 0..WAITERS {
        let mut acquire = Box::pin(locker.lock("hot").timeout(Duration::MAX).acquire());
        assert!(size_of_val(&*acquire) < 700, "a waiter's future takes {} bytes", size_of_val(&*acquire));
        queue(&mut acquire).await;
        waiters.push(acquire);
    }
    assert_eq!(threads(), before, "no waiter has a thread");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "no waiter has a task");
    assert_eq!(store.len(), 1);
    let (mut last, mut guard) = (0, first);
    for waiter in waiters {
        assert!(guard.fence() > last);
        last = guard.fence();
        guard.release().await.unwrap();
        guard = in_time("the next in the order of asking", waiter).await.unwrap();
    }
    guard.release().await.unwrap();
    assert!(store.is_empty());
}

#[tokio::test]
async fn dropped_waiters_leave_the_queue_at_once() {
    let store = Memory::new();
    let locker = on(&store);
    let guard = locker.lock("hot").acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..20_000 {
        let mut acquire = Box::pin(locker.lock("hot").timeout(Duration::MAX).acquire());
        queue(&mut acquire).await;
        waiters.push(acquire);
    }
    let last = waiters.pop().unwrap();
    drop(waiters);
    guard.release().await.unwrap();
    in_time("the last", last).await.unwrap().release().await.unwrap();
    assert!(store.is_empty());
}

/// The entry goes when the lease is over, though no caller asks for the name.
#[tokio::test]
async fn forgotten_guard_leaves_no_entry() {
    let store = Memory::new();
    let locker = on(&store);
    let request = locker.lock("forgotten").lease(Duration::from_secs(2)).renew(false);
    std::mem::forget(request.acquire().await.unwrap());
    assert_eq!(store.len(), 1);
    until("the entry to be swept", async || store.is_empty()).await;
}

/// Each `Locker::memory()` is a store of its own.
#[tokio::test]
async fn memory_urls_share_one_store() {
    let (one, other) =
        (Locker::connect("memory://").await.unwrap(), Locker::connect("memory://").await.unwrap());
    let guard = one.lock("shared").acquire().await.unwrap();
    assert!(other.lock("shared").try_acquire().await.unwrap().is_none());
    assert!(Locker::memory().lock("shared").try_acquire().await.unwrap().is_some());
    guard.release().await.unwrap();
}
