//! However a function ends, its lock ends with it.

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
async fn async_lock_is_free_when_the_function_has_returned() {
    asynchronous("returns").await.unwrap();
    assert!(take("release.by_value", &[&"returns"]).is_some());
    assert!(matches!(asynchronous("fails").await, Err(Failure::Own)));
    assert!(take("release.by_value", &[&"fails"]).is_some());
}

#[test]
fn plain_lock_is_free_when_the_function_has_returned() {
    plain("plainly returns").unwrap();
    assert!(take("release.by_value", &[&"plainly returns"]).is_some());
}

#[test]
fn plain_lock_is_free_after_an_error_or_a_panic() {
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
async fn async_lock_is_given_back_after_a_panic() {
    tokio::spawn(asynchronous("panics")).await.unwrap_err();
    assert!(becomes_free("release.by_value", &[&"panics"]).await);
}

#[tokio::test]
async fn async_lock_is_given_back_when_the_future_is_dropped() {
    let mut future = Box::pin(asynchronous("waits"));
    assert!(start(future.as_mut()).is_pending());
    assert!(take("release.by_value", &[&"waits"]).is_none());
    drop(future);
    assert!(becomes_free("release.by_value", &[&"waits"]).await);
}

#[tokio::test]
async fn future_dropped_while_waiting_leaves_no_trace_in_the_queue() {
    let held = take("release.by_value", &[&"queued"]).unwrap();
    {
        let mut waiting = pin!(asynchronous("queued"));
        assert!(start(waiting.as_mut()).is_pending());
    }
    held.release().await.unwrap();
    assert!(take("release.by_value", &[&"queued"]).is_some(), "nobody is handed the lock");
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
async fn on_expiry_keeps_the_lock_however_the_function_ends() {
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
fn on_expiry_keeps_the_lock_of_a_plain_function() {
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
fn each_keeps_all_locks_until_they_expire_or_none() {
    let held = take("release.each", &[&2]).unwrap();
    each_once(1, 2).unwrap_err();
    assert!(take("release.each", &[&1]).is_some(), "not kept, for the function did not run");
    drop(held);
    each_once(1, 2).unwrap();
    assert!(take("release.each", &[&1]).is_none());
    assert!(take("release.each", &[&2]).is_none());
}

#[test]
fn body_that_panics_masks_nothing() {
    let panic = catch_unwind(AssertUnwindSafe(|| plain("panics"))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"as wanted"));
}
