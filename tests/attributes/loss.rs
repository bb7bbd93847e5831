//! Leases lost while the body runs.

use crate::support::{Done, Failure, LOCKER, logged};
use locker::{ErrorKind, Guard, limit_concurrency, lock_on_argument};
use std::{
    future::{pending, poll_fn},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    task::Poll,
    thread,
};

/// Records that the body was dropped.
struct Dropped<'a>(&'a AtomicBool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn outlive(lease: &Guard) {
    while lease.is_held() {
        thread::yield_now();
    }
}

#[lock_on_argument(expr = "20ms", max_hold = "20ms", locker = LOCKER)]
async fn cancelled(dropped: &AtomicBool) -> Done {
    let _dropped = Dropped(dropped);
    pending().await
}

/// Blocks its executor in the first poll until the lease is over. The next poll finds both the loss and the body ready.
#[lock_on_argument(expr = "20ms", renew = false, guard = lease, locker = LOCKER)]
async fn blocks_its_executor(has_gone_on: &AtomicBool) -> Done {
    let mut waits = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waits, true) {
            return Poll::Ready(());
        }
        outlive(lease);
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    has_gone_on.store(true, SeqCst);
    Ok(())
}

#[lock_on_argument(expr = "20ms", renew = false, guard = lease, locker = LOCKER)]
async fn ends_before_the_loss_is_known() -> Done<u8> {
    outlive(lease);
    Ok(1)
}

#[lock_on_argument(expr = "20ms", renew = false, on_lost = "continue", guard = lease, locker = LOCKER)]
async fn continues() -> Done<u8> {
    lease.lost().await;
    tokio::task::yield_now().await;
    Ok(2)
}

#[lock_on_argument(expr = "20ms", renew = false, on_lost = "error", guard = lease, locker = LOCKER)]
async fn fails(result: Done<u8>) -> Done<u8> {
    lease.lost().await;
    result
}

#[lock_on_argument(expr = "20ms", renew = false, on_lost = "continue", guard = lease, locker = LOCKER)]
fn plain_continues() -> Done<u8> {
    outlive(lease);
    Ok(3)
}

#[lock_on_argument(expr = "20ms", renew = false, on_lost = "error", guard = lease, locker = LOCKER)]
fn plain_fails(result: Done<u8>) -> Done<u8> {
    outlive(lease);
    result
}

#[lock_on_argument(expr = "20ms", renew = false, guard = lease, locker = LOCKER)]
fn plain_fails_by_default(result: Done<u8>) -> Done<u8> {
    outlive(lease);
    result?;
    Ok(3)
}

#[limit_concurrency(size = 1, expr = "20ms", renew = false, guard = lease, on_error = kind, locker = LOCKER)]
fn plain_loss_through_on_error() -> ErrorKind {
    outlive(lease);
    ErrorKind::Misused
}

#[lock_on_argument(expr = "20ms", release = "on_expiry", max_hold = "20ms", guard = lease, locker = LOCKER)]
fn plain_fails_although_it_keeps_its_lock() -> Done {
    outlive(lease);
    Ok(())
}

#[lock_on_argument(on_lost = "error", locker = LOCKER)]
fn plain_keeps(result: Done<u8>) -> Done<u8> {
    result
}

#[lock_on_argument(on_lost = "error", locker = LOCKER)]
async fn keeps(result: Done<u8>) -> Done<u8> {
    result
}

#[lock_on_argument(expr = "20ms", max_hold = "20ms", each(0, 1), locker = LOCKER)]
async fn several(_: u8, _: u8) -> Done {
    pending().await
}

#[lock_on_argument(expr = "20ms", max_hold = "20ms", on_error = kind, locker = LOCKER)]
async fn loss_through_on_error() -> ErrorKind {
    pending().await
}

#[allow(clippy::needless_pass_by_value, reason = "the form that `on_error` takes")]
fn kind(error: locker::Error) -> ErrorKind {
    error.kind()
}

#[tokio::test]
async fn lost_lease_cancels_the_body() {
    let dropped = AtomicBool::new(false);
    assert_eq!(cancelled(&dropped).await.unwrap_err().kind(), Some(ErrorKind::Lost));
    assert!(dropped.load(SeqCst));
    assert_eq!(several(1, 2).await.unwrap_err().kind(), Some(ErrorKind::Lost));
    assert_eq!(loss_through_on_error().await, ErrorKind::Lost);
}

#[tokio::test]
async fn waiting_body_stops_after_its_lease() {
    let has_gone_on = AtomicBool::new(false);
    assert_eq!(blocks_its_executor(&has_gone_on).await.unwrap_err().kind(), Some(ErrorKind::Lost));
    assert!(!has_gone_on.load(SeqCst));
}

#[tokio::test]
async fn body_ended_before_loss_keeps_its_result() {
    assert_eq!(ends_before_the_loss_is_known().await.unwrap(), 1);
}

#[tokio::test]
async fn continue_keeps_the_result() {
    assert_eq!(continues().await.unwrap(), 2);
    assert_eq!(plain_continues().unwrap(), 3);
}

#[test]
fn continue_logs_the_loss() {
    let text = logged(|| assert_eq!(plain_continues().unwrap(), 3));
    assert!(text.contains("the function's result is kept") && text.contains(":lock|"), "{text}");
}

#[tokio::test]
async fn error_replaces_the_result() {
    assert_eq!(fails(Ok(1)).await.unwrap_err().kind(), Some(ErrorKind::Lost));
    assert_eq!(fails(Err(Failure::Own)).await.unwrap_err().kind(), Some(ErrorKind::Lost));
    assert_eq!(plain_fails(Ok(1)).unwrap_err().kind(), Some(ErrorKind::Lost));
    assert_eq!(plain_fails(Err(Failure::Own)).unwrap_err().kind(), Some(ErrorKind::Lost));
}

/// A plain function that is longer than its lease ran beside the next one, and both returned `Ok`.
#[test]
fn plain_function_reports_a_loss_by_default() {
    for result in [Ok(1), Err(Failure::Own)] {
        assert_eq!(plain_fails_by_default(result).unwrap_err().kind(), Some(ErrorKind::Lost));
    }
    assert_eq!(plain_loss_through_on_error(), ErrorKind::Lost);
    assert_eq!(plain_fails_although_it_keeps_its_lock().unwrap_err().kind(), Some(ErrorKind::Lost));
}

#[tokio::test]
async fn result_stands_without_a_loss() {
    assert_eq!(keeps(Ok(4)).await.unwrap(), 4);
    assert!(matches!(keeps(Err(Failure::Own)).await, Err(Failure::Own)));
    assert_eq!(plain_keeps(Ok(4)).unwrap(), 4);
    assert!(matches!(plain_keeps(Err(Failure::Own)), Err(Failure::Own)));
}
