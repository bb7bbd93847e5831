//! Futures are `Send` if the arguments and the result are, and work on one thread if not.

use crate::support::{Done, LOCKER};
use locker::{lock_on_argument, rate_limit};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use std::{cell::Cell, future::ready, rc::Rc};

#[lock_on_argument(args(text), locker = LOCKER, guard = lease)]
async fn sendable(text: String) -> Done<u64> {
    ready(()).await;
    Ok(lease.fence())
}

#[lock_on_argument(args(cell.get()), locker = LOCKER)]
async fn sendable_cell(cell: Cell<u8>) -> Done<u8> {
    ready(()).await;
    Ok(cell.get())
}

#[lock_on_argument(args(text), locker = LOCKER)]
async fn local(text: Rc<str>) -> Done<usize> {
    ready(()).await;
    Ok(text.len())
}

#[lock_on_argument(each(a, b), locker = LOCKER, on_lost = "error")]
async fn several(a: String, b: u8) -> Done {
    drop(ready((a, b)).await);
    Ok(())
}

#[lock_on_argument(args(a), locker = LOCKER, on_lost = "continue")]
async fn continues(a: &str) -> Done<&str> {
    ready(()).await;
    Ok(a)
}

/// The result is never kept across an await.
#[rate_limit(size = 5, interval = 1, locker = LOCKER, on_error = refused)]
async fn returns_a_local_value() -> Rc<str> {
    ready(()).await;
    "a".into()
}

fn refused(_: locker::Error) -> Rc<str> {
    "".into()
}

#[test]
fn futures_are_send_when_their_arguments_are() {
    fn send<F: Future + Send>(_: &F) {}
    send(&sendable(String::new()));
    send(&sendable_cell(Cell::new(1)));
    send(&several(String::new(), 1));
    send(&continues("a"));
    send(&returns_a_local_value());
    assert_impl_all!(locker::Guard: Send, Sync);
    assert_not_impl_any!(Rc<str>: Send);
}

#[tokio::test]
async fn local_arguments_work_with_spawn_local() {
    let tasks = tokio::task::LocalSet::new();
    let lengths = tasks.run_until(async { tokio::task::spawn_local(local("abc".into())).await.unwrap() });
    assert_eq!(lengths.await.unwrap(), 3);
    assert_eq!(tokio::spawn(sendable_cell(Cell::new(7))).await.unwrap().unwrap(), 7);
}
