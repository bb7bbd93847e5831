//! Stacked attributes act in the order written.

use crate::support::{Done, LOCKER, becomes_free, start, take};
use locker::{Locker, lock_on_argument};
use locker_harness::{ScriptedStore, is_release};
use std::{future::ready, pin::pin};

#[lock_on_argument(expr = "1h", name = "nesting.outer", args(id), locker = LOCKER)]
#[inline]
#[locker::lock_on_argument(expr = "1h", name = "nesting.inner", args(id), locker = LOCKER, guard = inner)]
/// Documented.
#[::locker::lock_on_argument(expr = "1h", name = "nesting.innermost", each(id), locker = LOCKER, on_lost = "error")]
async fn nested(id: &str) -> Done<(&str, u64)> {
    for name in ["nesting.outer", "nesting.inner", "nesting.innermost"] {
        assert!(take(name, &[&id]).is_none(), "{name} is held");
    }
    ready(()).await;
    Ok((id, inner.fence()))
}

#[lock_on_argument(name = "nesting.outer", args(0), locker = LOCKER)]
#[lock_on_argument(name = "nesting.inner", args(0), locker = LOCKER, on_lost = "error", guard = lease)]
#[lock_on_argument(name = "nesting.innermost", args(0), locker = LOCKER, timeout = 0)]
fn plain(id: u8) -> Done<(u8, bool)> {
    Ok((id, lease.is_held()))
}

#[tokio::test]
async fn attributes_are_entered_in_the_order_written() {
    let inner = take("nesting.inner", &[&"a"]).unwrap();
    let mut call = pin!(nested("a"));
    assert!(start(call.as_mut()).is_pending());
    assert!(take("nesting.outer", &[&"a"]).is_none(), "entered before the inner one");
    assert!(take("nesting.innermost", &[&"a"]).is_some(), "not yet entered");
    inner.release().await.unwrap();
    assert_eq!(call.await.unwrap().0, "a");
}

/// No inner lock is taken while the call waits for the outer one.
#[tokio::test]
async fn inner_attribute_waits_for_the_outer() {
    let outer = take("nesting.outer", &[&"b"]).unwrap();
    let mut call = pin!(nested("b"));
    assert!(start(call.as_mut()).is_pending());
    assert!(take("nesting.inner", &[&"b"]).is_some());
    outer.release().await.unwrap();
    call.await.unwrap();
    for name in ["nesting.outer", "nesting.inner", "nesting.innermost"] {
        assert!(becomes_free(name, &[&"b"]).await);
    }
}

#[test]
fn plain_attributes_nest_too() {
    assert_eq!(plain(1).unwrap(), (1, true));
    let innermost = take("nesting.innermost", &[&1]).unwrap();
    plain(1).unwrap_err();
    drop(innermost);
    for name in ["nesting.outer", "nesting.inner", "nesting.innermost"] {
        assert!(take(name, &[&1]).is_some(), "{name} is free");
    }
}

#[lock_on_argument(name = "outer", locker = locker, guard = outer)]
#[lock_on_argument(name = "inner", locker = locker, guard = inner)]
async fn both_keys(locker: &Locker) -> Done<[String; 2]> {
    Ok([inner.key().to_owned(), outer.key().to_owned()])
}

#[lock_on_argument(name = "outer", locker = locker, guard = outer)]
#[lock_on_argument(name = "inner", locker = locker, guard = inner, on_lost = "error")]
fn plain_both_keys(locker: &Locker) -> Done<[String; 2]> {
    Ok([inner.key().to_owned(), outer.key().to_owned()])
}

#[tokio::test]
async fn attributes_are_left_in_reverse() {
    let store = ScriptedStore::remote();
    let locker = Locker::builder().store(store.clone()).build().await.unwrap();
    let keys = [both_keys(&locker).await.unwrap(), plain_both_keys(&locker).unwrap()].concat();
    let requests = store.requests().into_iter();
    let released = requests.filter(|(_, request)| is_release(request)).map(|(key, _)| key.to_string());
    assert_eq!(keys, released.collect::<Vec<_>>());
}
