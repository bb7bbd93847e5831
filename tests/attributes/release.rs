//! The lock is released however its function ends.

use crate::support::{Done, Failure, LOCKER, becomes_free, start, take};
use locker::{ErrorKind, lock_on_argument};
use std::{
    future::{pending, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
};

#[lock_on_argument(expr = "1h", name = "release.by_value", args(end), locker = LOCKER)]
async fn asynchronous(end: &str) -> Done {
    assert!(take("release.by_value", &[&end]).is_none(), "held while the body runs");
    ready(()).await;
    ends(end)?;
    if end == "waits" {
        pending::<()>().await;
    }
    Ok(())
}

#[lock_on_argument(expr = "1h", name = "release.by_value", args(end), locker = LOCKER)]
fn plain(end: &str) -> Done {
    assert!(take("release.by_value", &[&end]).is_none(), "held while the body runs");
    ends(end)
}

fn ends(end: &str) -> Done {
    match end {
        "fails" => Err(Failure::Own),
        "panics" => panic!("as wanted"),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn async_lock_is_free_after_return() {
    asynchronous("returns").await.unwrap();
    assert!(take("release.by_value", &[&"returns"]).is_some());
    assert!(matches!(asynchronous("fails").await, Err(Failure::Own)));
    assert!(take("release.by_value", &[&"fails"]).is_some());
}

#[test]
fn plain_lock_is_free_after_return() {
    plain("plainly returns").unwrap();
    assert!(take("release.by_value", &[&"plainly returns"]).is_some());
}

#[test]
fn plain_lock_is_free_after_error_and_panic() {
    #[lock_on_argument(expr = "1h", name = "release.plain", args(end), locker = LOCKER)]
    fn plain(end: &str) -> Done {
        ends(end)
    }
    assert!(matches!(plain("fails"), Err(Failure::Own)));
    assert!(take("release.plain", &[&"fails"]).is_some());
    catch_unwind(|| plain("panics")).unwrap_err();
    assert!(take("release.plain", &[&"panics"]).is_some());
}

#[tokio::test]
async fn async_panic_releases_the_lock() {
    tokio::spawn(asynchronous("panics")).await.unwrap_err();
    assert!(becomes_free("release.by_value", &[&"panics"]).await);
}

#[tokio::test]
async fn dropped_future_releases_the_lock() {
    let mut future = Box::pin(asynchronous("waits"));
    assert!(start(future.as_mut()).is_pending());
    assert!(take("release.by_value", &[&"waits"]).is_none());
    drop(future);
    assert!(becomes_free("release.by_value", &[&"waits"]).await);
}

#[tokio::test]
async fn future_dropped_while_waiting_leaves_the_queue() {
    let held = take("release.by_value", &[&"queued"]).unwrap();
    {
        let mut waiting = pin!(asynchronous("queued"));
        assert!(start(waiting.as_mut()).is_pending());
    }
    held.release().await.unwrap();
    assert!(take("release.by_value", &[&"queued"]).is_some(), "the dropped future is not granted the lock");
}

#[lock_on_argument(expr = "1h", name = "release.once", args(end), release = "on_expiry", locker = LOCKER)]
async fn once(end: &str) -> Done {
    ends(end)?;
    if end == "waits" {
        pending::<()>().await;
    }
    Ok(())
}

#[tokio::test]
async fn on_expiry_keeps_the_lock_at_every_end() {
    once("returns").await.unwrap();
    once("fails").await.unwrap_err();
    tokio::spawn(once("panics")).await.unwrap_err();
    assert!(start(pin!(once("waits"))).is_pending());
    for end in ["returns", "fails", "panics", "waits"] {
        assert!(take("release.once", &[&end]).is_none(), "{end}");
        assert_eq!(
            once(end).await.unwrap_err().kind(),
            Some(ErrorKind::TimedOut),
            "by default without waiting"
        );
    }
}

#[test]
fn on_expiry_keeps_a_plain_functions_lock() {
    #[lock_on_argument(expr = "1h", name = "release.plain_once", release = "on_expiry", locker = LOCKER)]
    fn once(end: &str) -> Done {
        ends(end)
    }
    catch_unwind(|| once("panics")).unwrap_err();
    assert_eq!(once("returns").unwrap_err().kind(), Some(ErrorKind::TimedOut));
}

#[lock_on_argument(expr = "1h", name = "release.each", each(a, b), release = "on_expiry", locker = LOCKER)]
fn each_once(a: u8, b: u8) -> Done {
    assert!(a < b);
    Ok(())
}

#[test]
fn on_expiry_with_each_keeps_all_locks_or_none() {
    let held = take("release.each", &[&2]).unwrap();
    each_once(1, 2).unwrap_err();
    assert!(take("release.each", &[&1]).is_some(), "not kept, since the function did not run");
    drop(held);
    each_once(1, 2).unwrap();
    assert!(take("release.each", &[&1]).is_none());
    assert!(take("release.each", &[&2]).is_none());
}

/// The release during unwinding does not replace the panic.
#[test]
fn panic_of_the_body_is_passed_on() {
    let panic = catch_unwind(AssertUnwindSafe(|| plain("panics"))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"as wanted"));
}
