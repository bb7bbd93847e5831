//! Laws of the read/write lock.

use crate::support::{GENEROUS, SOON, fresh_name, in_time, queued, queued_at, until};
use futures_util::future::{Either, join_all, select};
use locker::{ErrorKind, Key, Locker, lock_on_argument};
use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

pub(crate) async fn readers_share_and_a_writer_is_alone(locker: Locker) {
    let (name, inside) = (fresh_name(), Arc::new(AtomicI64::new(0)));
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let (locker, name, inside) = (locker.clone(), name.clone(), inside.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let (request, weight) = if number % 4 == 0 {
                        (locker.write_lock(&name), 1000)
                    } else {
                        (locker.read_lock(&name), 1)
                    };
                    let guard = request.timeout(GENEROUS).acquire().await.unwrap();
                    let now = inside.fetch_add(weight, Ordering::SeqCst) + weight;
                    assert!(now <= 1000, "a writer is inside with others: {now}");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(weight, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("a reader or writer", task).await.unwrap();
    }
}

pub(crate) async fn a_run_of_readers_is_granted_together(locker: Locker) {
    let name = fresh_name();
    let writer = locker.write_lock(&name).acquire().await.unwrap();
    assert_eq!(writer.key(), format!("rwlock:{name}"));
    let mut readers = Vec::new();
    for _ in 0..4 {
        readers.push(
            queued(&locker, "rwlock", &name, locker.read_lock(&name).timeout(GENEROUS).acquire()).await,
        );
    }
    let last = queued(&locker, "rwlock", &name, locker.write_lock(&name).timeout(GENEROUS).acquire()).await;
    writer.release().await.unwrap();
    let mut held = Vec::new();
    for reader in readers {
        held.push(in_time("a reader", reader).await.unwrap());
    }
    assert!(held.is_sorted_by_key(locker::Guard::fence));
    assert!(locker.write_lock(&name).try_acquire().await.unwrap().is_none());
    drop(held);
    in_time("the writer behind them", last).await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_waiting_writer_is_not_passed_by_readers(locker: Locker) {
    let name = fresh_name();
    let reader = locker.read_lock(&name).acquire().await.unwrap();
    let second = locker.read_lock(&name).try_acquire().await.unwrap();
    assert!(second.is_some(), "readers share");
    let writer = queued(&locker, "rwlock", &name, locker.write_lock(&name).timeout(GENEROUS).acquire()).await;
    assert!(locker.read_lock(&name).try_acquire().await.unwrap().is_none());
    drop((reader, second));
    in_time("the writer", writer).await.unwrap().release().await.unwrap();
    assert!(locker.read_lock(&name).try_acquire().await.unwrap().is_some());
}

/// Unfair readers and the fair reader behind them are all granted when the writer leaves.
pub(crate) async fn unfair_readers_enter_with_fair_ones(locker: Locker) {
    let name = fresh_name();
    let writer = locker.write_lock(&name).acquire().await.unwrap();
    let mut readers = Vec::new();
    for fair in [false, false, false, true] {
        let request = locker.read_lock(&name).fair(fair).timeout(SOON).retry_delay(GENEROUS);
        readers.push(queued(&locker, "rwlock", &name, request.acquire()).await);
    }
    writer.release().await.unwrap();
    let held = join_all(readers).await;
    assert!(held.iter().all(Result::is_ok), "{held:?}");
}

#[lock_on_argument(name = "law.page", args(page), timeout = 0, locker = locker)]
async fn alone(locker: &Locker, page: &str) -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(name = "law.page", args(page), fair = false, locker = locker)]
async fn alone_for_long(locker: &Locker, page: &str) -> locker::Result<()> {
    pending().await
}

#[lock_on_argument(name = "law.page", args(page), mode = "write", locker = locker)]
async fn write(locker: &Locker, page: &str) -> locker::Result<()> {
    pending().await
}

#[lock_on_argument(
    name = "law.page",
    args(page),
    mode = "read",
    timeout = SOON,
    retry_delay = GENEROUS,
    locker = locker,
)]
async fn read(locker: &Locker, page: &str) -> locker::Result<()> {
    Ok(())
}

/// Starts a call that holds the key for good, and returns when it does.
async fn holding<F: Future<Output = locker::Result<()>>>(locker: &Locker, key: &Key, call: F) -> Pin<Box<F>> {
    let admin = locker.admin();
    let held = until("the holder", async || {
        admin.inspect(key).await.unwrap().is_some_and(|state| state.holders.len() == 1)
    });
    match select(Box::pin(call), Box::pin(held)).await {
        Either::Left((answer, _)) => panic!("the call has ended: {answer:?}"),
        Either::Right(((), call)) => call,
    }
}

/// A plain lock at the key of a read/write lock is refused, and the waiting reader is served nevertheless.
pub(crate) async fn refused_plain_lock_does_not_block_readers(locker: Locker) {
    let page = fresh_name();
    let key = locker.admin().key_on("law.page", &[&page.as_str()]);
    let writing = holding(&locker, &key, write(&locker, &page)).await;
    let reading = queued_at(&locker, &key, read(&locker, &page)).await;
    assert_eq!(alone(&locker, &page).await.unwrap_err().kind(), ErrorKind::Conflict);
    drop(writing);
    reading.await.unwrap();
}

pub(crate) async fn is_free_after_a_plain_lock_at_its_key(locker: Locker) {
    let page = fresh_name();
    alone(&locker, &page).await.unwrap();
    read(&locker, &page).await.unwrap();
    alone(&locker, &page).await.unwrap();
}

/// The plain lock at its key is free, but kept for the next waiter in the queue.
pub(crate) async fn conflicts_with_a_lock_kept_for_a_waiter(locker: Locker) {
    let page = fresh_name();
    let key = locker.admin().key_on("law.page", &[&page.as_str()]);
    let holder = holding(&locker, &key, alone_for_long(&locker, &page)).await;
    let _woken = queued_at(&locker, &key, alone_for_long(&locker, &page)).await;
    drop(holder);
    locker.settled().await;
    assert_eq!(read(&locker, &page).await.unwrap_err().kind(), ErrorKind::Conflict);
}
