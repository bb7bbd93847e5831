//! How long a call waits, and the error when it does not get the lock.

use crate::support::{Done, LOCKER, becomes_free, take};
use locker::{ErrorKind, lock_on_argument};
use std::future::Future;

#[lock_on_argument(name = "waiting.once", timeout = 0, locker = LOCKER)]
async fn once() -> Done {
    Ok(())
}

#[lock_on_argument(name = "waiting.counted", max_retry = 1, locker = LOCKER)]
fn counted() -> Done {
    Ok(())
}

#[lock_on_argument(expr = "1h", timeout = "20ms", locker = LOCKER, args(depth))]
fn recurses_elsewhere(depth: u8) -> Done<u8> {
    if depth == 0 { Ok(0) } else { Ok(recurses_elsewhere(depth - 1)? + 1) }
}

#[lock_on_argument(expr = "1h", timeout = "20ms", locker = LOCKER)]
fn recurses(depth: u8) -> Done<u8> {
    if depth == 0 { Ok(0) } else { Ok(recurses(depth - 1)? + 1) }
}

#[lock_on_argument(expr = "1h", timeout = "20ms", locker = LOCKER)]
async fn recurses_async(depth: u8) -> Done<u8> {
    if depth == 0 { Ok(0) } else { Ok(again(depth - 1).await? + 1) }
}

fn again(depth: u8) -> std::pin::Pin<Box<dyn Future<Output = Done<u8>> + Send>> {
    Box::pin(recurses_async(depth))
}

#[lock_on_argument(name = "waiting.each", each(0, 1), timeout = "20ms", locker = LOCKER)]
async fn each(_: u8, _: u8) -> Done {
    Ok(())
}

#[tokio::test]
async fn timeout_of_zero_tries_once() {
    let held = take("waiting.once", &[]).unwrap();
    assert_eq!(once().await.unwrap_err().kind(), Some(ErrorKind::TimedOut));
    held.release().await.unwrap();
    once().await.unwrap();
}

#[test]
fn attempts_are_counted() {
    let _held = take("waiting.counted", &[]).unwrap();
    assert_eq!(counted().unwrap_err().kind(), Some(ErrorKind::RetriesExhausted));
}

#[tokio::test]
async fn recursion_on_one_key_is_told() {
    assert_eq!(recurses(0).unwrap(), 0);
    assert_eq!(recurses(1).unwrap_err().kind(), Some(ErrorKind::Misused));
    assert_eq!(recurses_async(0).await.unwrap(), 0);
    assert_eq!(recurses_async(1).await.unwrap_err().kind(), Some(ErrorKind::Misused));
    assert_eq!(recurses_elsewhere(5).unwrap(), 5);
}

#[tokio::test]
async fn several_locks_are_all_taken_or_none() {
    let held = take("waiting.each", &[&2]).unwrap();
    for (a, b) in [(1, 2), (2, 1), (2, 3), (3, 2)] {
        assert_eq!(each(a, b).await.unwrap_err().kind(), Some(ErrorKind::TimedOut));
    }
    for free in [1, 3] {
        assert!(becomes_free("waiting.each", &[&free]).await);
    }
    held.release().await.unwrap();
    each(1, 2).await.unwrap();
    each(2, 2).await.unwrap();
}

#[test]
fn error_names_the_key_but_no_argument() {
    #[lock_on_argument(name = "waiting.secret", args(text), timeout = 0, locker = LOCKER)]
    fn named(text: &str) -> locker::Result<()> {
        assert!(text.is_empty(), "the body does not run");
        Ok(())
    }
    let held = take("waiting.secret", &[&"confidential"]).unwrap();
    let error = named("confidential").unwrap_err();
    assert_eq!(error.key(), Some(held.key()));
    assert!(!error.to_string().contains("confidential"));
}
