//! A release that fails never hides what the body ended with, and is told.

use crate::support::{Done, Failure, told};
use locker::{
    Error, ErrorKind, Key, Locker, Pushes, lock_on_argument,
    primitives::{Holding, Request},
    store::{Calling, Store},
    stores::Memory,
};
use std::sync::LazyLock;
use tokio::task::{JoinError, JoinSet};

/// The embedded store, where releases fail.
#[derive(Debug)]
struct NoReleases(Memory);

impl Store for NoReleases {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        if matches!(request, Request::Lock(Holding::Release { .. })) {
            return Calling::answered(Err(Error::new(ErrorKind::Unavailable, "no releases today")));
        }
        self.0.call(key, request)
    }

    fn pushes(&self) -> &Pushes {
        self.0.pushes()
    }
}

static LOCKER: LazyLock<Locker> = LazyLock::new(|| {
    let builder = Locker::builder().store(NoReleases(Memory::new()));
    builder.build_blocking().unwrap()
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

/// All four functions at once: each tries for a third of its lease to release.
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
async fn failing_release_masks_neither_value_nor_error_nor_panic() {
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
fn failing_release_is_told() {
    let text = told(|| assert_eq!(plain("told").unwrap(), 1));
    assert!(text.contains("WARN") && text.contains("no releases today"), "{text}");
}
