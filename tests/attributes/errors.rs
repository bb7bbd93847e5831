//! Errors name the function beside the key, of which they show digests only.

use crate::support::LOCKER;
use locker::{Error, ErrorKind, Guard, Locker, Result, limit_concurrency, lock_on_argument, rate_limit};
use std::{thread, time::Duration};

#[lock_on_argument(args(guard.key()), timeout = 0, locker = LOCKER)]
fn again(guard: &Guard, call: fn(&Guard) -> Result<()>) -> Result<()> {
    call(guard)
}

fn call_again(guard: &Guard) -> Result<()> {
    again(guard, |_| Ok(()))
}

#[lock_on_argument(name = "errors.named", each(a, b), timeout = 0, locker = LOCKER)]
async fn named(a: u8, b: u8) -> Result<()> {
    Ok(())
}

#[limit_concurrency(size = 1, timeout = 0, locker = LOCKER)]
async fn limited_concurrency(again: bool) -> Result<()> {
    if again { Box::pin(limited_concurrency(false)).await } else { Ok(()) }
}

#[rate_limit(size = 1, interval = "1h", timeout = 0, locker = LOCKER)]
async fn limited_rate() -> Result<()> {
    Ok(())
}

#[lock_on_argument(expr = "20ms", renew = false, guard = lease, locker = LOCKER)]
fn loses() -> Result<()> {
    while lease.is_held() {
        thread::yield_now();
    }
    lease.check()
}

#[lock_on_argument(max_hold = "1s", locker = LOCKER)]
fn misused() -> Result<()> {
    Ok(())
}

fn has(error: &Error, kind: ErrorKind, function: &str) {
    assert_eq!((error.kind(), error.function()), (kind, Some(function)), "{error}");
    let shown = match error.key() {
        Some(key) => format!("{key} ({function}): "),
        None => format!("{function}: "),
    };
    assert!(error.to_string().starts_with(&shown), "{error}");
    assert!(format!("{error:?}").contains(&format!("function: Some({function:?})")), "{error:?}");
}

#[tokio::test]
async fn errors_of_attributes_name_the_function() {
    let module = module_path!();
    let guard = LOCKER.lock("errors").acquire().await.unwrap();
    has(&again(&guard, call_again).unwrap_err(), ErrorKind::TimedOut, &format!("{module}::again"));
    let held = LOCKER.lock_on("errors.named", &[&2]).acquire().await.unwrap();
    has(&named(1, 2).await.unwrap_err(), ErrorKind::TimedOut, "errors.named");
    drop(held);
    let of = |name| format!("{module}::{name}");
    has(&limited_concurrency(true).await.unwrap_err(), ErrorKind::TimedOut, &of("limited_concurrency"));
    limited_rate().await.unwrap();
    has(&limited_rate().await.unwrap_err(), ErrorKind::Limited, &of("limited_rate"));
    has(&loses().unwrap_err(), ErrorKind::Lost, &of("loses"));
    has(&misused().unwrap_err(), ErrorKind::Misused, &of("misused"));
}

#[test]
fn errors_by_hand_name_no_function() {
    let locker = Locker::memory();
    let _held = locker.lock("a").acquire_blocking().unwrap();
    let error = locker.lock("a").timeout(Duration::ZERO).acquire_blocking().unwrap_err();
    assert_eq!(error.function(), None);
    assert!(error.to_string().starts_with("lock:a: timed out"), "{error}");
}
