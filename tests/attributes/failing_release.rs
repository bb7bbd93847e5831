//! A failing release is logged and never hides the value, error or panic of the body. One that finds the hold gone is a
//! loss.

use crate::support::{Done, Failure, logged};
use futures_util::FutureExt;
use locker::{Error, ErrorKind, Guard, Key, Locker, lock_on_argument};
use locker_harness::{GENEROUS, ScriptedStore, Step, in_time, is_release, until};
use std::{
    future::ready,
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::{JoinError, JoinSet},
};

/// Every release fails.
static LOCKER: LazyLock<Locker> = LazyLock::new(|| {
    let store = ScriptedStore::remote();
    store.fail(is_release, Error::new(ErrorKind::Unavailable, "no releases today"));
    Locker::builder().store(store).build_blocking().unwrap()
});

#[lock_on_argument(expr = "3s", args(end), locker = LOCKER)]
fn plain(end: &str) -> Done<u8> {
    ends(end)
}

#[lock_on_argument(expr = "3s", args(end), locker = LOCKER, on_lost = "error")]
fn plain_checked(end: &str) -> Done<u8> {
    ends(end)
}

#[lock_on_argument(expr = "3s", args(end), locker = LOCKER)]
async fn asynchronous(end: &str) -> Done<u8> {
    ends(end)
}

#[lock_on_argument(expr = "3s", args(end), locker = LOCKER, on_lost = "error")]
async fn checked(end: &str) -> Done<u8> {
    ends(end)
}

fn ends(end: &str) -> Done<u8> {
    match end {
        "fails" => Err(Failure::Own),
        "panics" => panic!("as wanted"),
        _ => Ok(1),
    }
}

/// Calls all four functions at once, because each retries its release for a second.
async fn all(end: &'static str) -> Vec<Result<Done<u8>, JoinError>> {
    let mut calls = JoinSet::new();
    calls.spawn_blocking(move || plain(end));
    calls.spawn_blocking(move || plain_checked(end));
    calls.spawn(asynchronous(end));
    calls.spawn(checked(end));
    let mut ends = Vec::new();
    while let Some(end) = calls.join_next().await {
        ends.push(end);
    }
    ends
}

#[tokio::test]
async fn failing_release_keeps_value_error_and_panic() {
    for end in all("returns").await {
        assert_eq!(end.unwrap().unwrap(), 1);
    }
    for end in all("fails").await {
        assert!(matches!(end.unwrap(), Err(Failure::Own)));
    }
    for end in all("panics").await {
        assert_eq!(end.unwrap_err().into_panic().downcast_ref(), Some(&"as wanted"));
    }
}

#[test]
fn failing_release_is_logged() {
    let text = logged(|| assert_eq!(plain("logged").unwrap(), 1));
    assert!(text.contains("WARN") && text.contains("no releases today"), "{text}");
}

async fn ends_evicted(locker: &Locker, lease: &Guard, end: &str) -> Done<u8> {
    assert!(locker.admin().evict(&Key::new(lease.key())).await.unwrap());
    assert!(lease.check().is_ok(), "the lease runs, and only the store knows");
    ends(end)
}

#[lock_on_argument(expr = "1h", args(end), locker = locker, guard = lease)]
fn plain_evicted(locker: &Locker, end: &str) -> Done<u8> {
    ends_evicted(locker, lease, end).now_or_never().expect("memory answers at once")
}

#[lock_on_argument(expr = "1h", args(end), locker = locker, guard = lease, on_lost = "continue")]
fn plain_continues(locker: &Locker, end: &str) -> Done<u8> {
    ends_evicted(locker, lease, end).now_or_never().expect("memory answers at once")
}

#[lock_on_argument(expr = "1h", args(end), locker = locker, guard = lease, on_lost = "error")]
async fn checked_evicted(locker: &Locker, end: &str) -> Done<u8> {
    ends_evicted(locker, lease, end).await
}

#[lock_on_argument(expr = "1h", args(end), locker = locker, guard = lease)]
async fn evicted(locker: &Locker, end: &str) -> Done<u8> {
    ends_evicted(locker, lease, end).await
}

/// Under `on_lost = "error"`, the default of plain functions, in place of the value and of the body's own error.
#[tokio::test]
async fn release_that_finds_the_hold_gone_is_a_loss() {
    let locker = Locker::memory();
    for end in ["returns", "fails"] {
        for lost in [plain_evicted(&locker, end), checked_evicted(&locker, end).await] {
            assert_eq!(lost.unwrap_err().kind(), Some(ErrorKind::Lost), "{end}");
        }
        for kept in [plain_continues(&locker, end), evicted(&locker, end).await] {
            assert_eq!(kept.is_ok(), end == "returns");
            assert!(!matches!(kept, Err(Failure::Locker(_))), "{kept:?}");
        }
    }
}

/// Releases wait until `open_from` of them have arrived.
async fn gated_locker(open_from: u32, command_timeout: Duration) -> (Locker, Arc<Semaphore>) {
    let (store, arrived) = (ScriptedStore::remote(), Arc::new(Semaphore::new(0)));
    let gate = arrived.clone();
    store.on_call(move |request| {
        if !is_release(request) {
            return Step::CarryOut;
        }
        let gate = gate.clone();
        let opens = async move {
            gate.add_permits(1);
            drop(gate.acquire_many(open_from).await);
        };
        Step::Delay(Box::pin(opens), Box::pin(ready(())))
    });
    (Locker::builder().store(store).command_timeout(command_timeout).build().await.unwrap(), arrived)
}

#[lock_on_argument(name = "gated", args(0), expr = "1h", locker = locker)]
fn plain_gated(_: u8, locker: &Locker) -> Done<u8> {
    Ok(1)
}

#[lock_on_argument(name = "gated", args(0), expr = "1h", locker = locker)]
async fn gated(_: u8, locker: &Locker) -> Done<u8> {
    Ok(1)
}

#[lock_on_argument(each(0, 1, 2), expr = "1h", locker = locker)]
async fn gated_each(_: u8, _: u8, _: u8, locker: &Locker) -> Done<u8> {
    Ok(1)
}

/// The store replies to releases only at the end of the test.
#[tokio::test]
async fn function_end_waits_at_most_command_timeout() {
    let (locker, arrived) = gated_locker(1000, Duration::from_millis(100)).await;
    let plain = locker.clone();
    let plain = thread::spawn(move || plain_gated(0, &plain));
    until("the plain function has ended", async || plain.is_finished()).await;
    assert_eq!(plain.join().unwrap().unwrap(), 1);
    assert_eq!(in_time("the async function", gated(1, &locker)).await.unwrap(), 1);
    // The release continues in the background.
    arrived.add_permits(1000);
    for argument in [0_u8, 1] {
        let guard = in_time("the lock", locker.lock_on("gated", &[&argument]).acquire()).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn each_releases_its_locks_concurrently() {
    let (locker, _) = gated_locker(3, GENEROUS * 2).await;
    assert_eq!(in_time("the function", gated_each(0, 1, 2, &locker)).await.unwrap(), 1);
}
