//! Functions drop their arguments when the body ends, in reverse order and before the release, as an async function
//! without the attribute does. Plain ones with `on_lost = "continue"` drop them after the release.

use crate::support::{Done, start};
use async_trait::async_trait;
use locker::{Guard, Locker, lock_on_argument};
use std::{
    cell::RefCell,
    fmt::{self, Display},
    future::{pending, ready},
    mem::take as drain,
    pin::pin,
};

thread_local! {
    static DROPPED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    static HERE: Locker = Locker::memory();
}

/// Returns the locker of this test. With a locker for all tests, each would see the holds of the others.
fn here() -> Locker {
    HERE.with(Locker::clone)
}

fn take() -> Option<Guard> {
    here().lock_on("drops", &[]).try_acquire_blocking().unwrap()
}

/// Records on its drop whether the lock was held.
struct Noted(&'static str);

impl Drop for Noted {
    fn drop(&mut self) {
        let held = take().is_none();
        DROPPED.with_borrow_mut(|dropped| dropped.push(if held { self.0 } else { "after the release" }));
    }
}

/// Returns the values dropped on this thread since the last call.
fn dropped() -> Vec<&'static str> {
    DROPPED.with_borrow_mut(drain)
}

fn use_up(_: Noted) {}

/// The same function without an attribute and with each `on_lost`.
macro_rules! every_way {
    ($function:ident($($arguments:tt)*) $body:tt) => {
        mod $function {
            use super::*;

            pub(super) async fn native($($arguments)*) -> Done $body

            #[lock_on_argument(name = "drops", locker = here())]
            pub(super) async fn cancelled($($arguments)*) -> Done $body

            #[lock_on_argument(name = "drops", locker = here(), on_lost = "continue")]
            pub(super) async fn continued($($arguments)*) -> Done $body

            #[lock_on_argument(name = "drops", locker = here(), on_lost = "error")]
            pub(super) async fn checked($($arguments)*) -> Done $body
        }
    };
}

macro_rules! all_drop_as_the_native {
    ($function:ident($($argument:expr),*)) => {
        let guard = take().unwrap();
        $function::native($($argument),*).await.unwrap();
        drop(guard);
        let native = dropped();
        assert!(!native.contains(&"after the release"), "{native:?}");
        $function::cancelled($($argument),*).await.unwrap();
        assert_eq!(dropped(), native, "cancelled");
        $function::continued($($argument),*).await.unwrap();
        assert_eq!(dropped(), native, "continued");
        $function::checked($($argument),*).await.unwrap();
        assert_eq!(dropped(), native, "checked");
    };
}

every_way! { three(a: Noted, b: Noted, c: Noted) {
    let _first_mentioned = (&c.0, &a.0, &b.0);
    ready(()).await;
    Ok(())
} }

every_way! { unused(_a: Noted, b: Noted, _c: Noted) {
    ready(b.0).await;
    Ok(())
} }

every_way! { partly_moved(a: (Noted, Noted, u8), b: Noted) {
    use_up(a.1);
    ready(b.0).await;
    Ok(())
} }

every_way! { patterns((a, b): (Noted, Noted), mut c: Noted) {
    c.0 = "changed";
    ready((b.0, a.0, c.0)).await;
    Ok(())
} }

#[tokio::test]
async fn async_functions_keep_their_drop_order() {
    all_drop_as_the_native!(three(Noted("a"), Noted("b"), Noted("c")));
    all_drop_as_the_native!(unused(Noted("a"), Noted("b"), Noted("c")));
    all_drop_as_the_native!(partly_moved((Noted("a.0"), Noted("a.1"), 0), Noted("b")));
    all_drop_as_the_native!(patterns((Noted("a"), Noted("b")), Noted("c")));
}

#[lock_on_argument(name = "drops", locker = here())]
async fn waits(_a: Noted, b: Noted) -> Done {
    ready(b.0).await;
    pending().await
}

#[test]
fn dropped_future_drops_arguments_then_releases() {
    assert!(start(pin!(waits(Noted("a"), Noted("b")))).is_pending());
    assert_eq!(dropped(), ["b", "a"]);
}

#[lock_on_argument(name = "drops", locker = here())]
fn plain(_a: Noted, b: Noted, (c, _d): (Noted, Noted)) -> Done {
    let _first_mentioned = (&c.0, &b.0);
    Ok(())
}

#[test]
fn closure_drops_arguments_before_the_release() {
    plain(Noted("a"), Noted("b"), (Noted("c"), Noted("d"))).unwrap();
    assert_eq!(dropped(), ["d", "c", "b", "a"]);
}

struct Pair {
    bound: Noted,
    _unbound: Noted,
}

/// Writes nothing, so its lock is the one without arguments.
impl Display for Pair {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

#[lock_on_argument(name = "drops", locker = here(), args(0))]
async fn by_position(Pair { bound, .. }: Pair) -> Done {
    assert!(dropped().is_empty(), "{}", bound.0);
    ready(()).await;
    Ok(())
}

#[lock_on_argument(name = "drops", locker = here(), args(0))]
async fn changed_by_position(Pair { ref mut bound, .. }: Pair) -> Done {
    assert!(dropped().is_empty());
    bound.0 = "changed";
    ready(()).await;
    Ok(())
}

#[lock_on_argument(name = "drops", locker = here(), args(0))]
fn plain_by_position(Pair { bound, .. }: Pair) -> Done {
    assert!(dropped().is_empty(), "{}", bound.0);
    Ok(())
}

#[lock_on_argument(name = "drops", locker = here(), args(0), on_lost = "continue")]
fn in_place_by_position(Pair { bound, .. }: Pair) -> Done {
    assert!(dropped().is_empty(), "{}", bound.0);
    Ok(())
}

#[tokio::test]
async fn unbound_fields_outlive_the_body() {
    let pair = || Pair { bound: Noted("bound"), _unbound: Noted("unbound") };
    by_position(pair()).await.unwrap();
    assert_eq!(dropped(), ["bound", "unbound"]);
    changed_by_position(pair()).await.unwrap();
    assert_eq!(dropped(), ["changed", "unbound"]);
    plain_by_position(pair()).unwrap();
    assert_eq!(dropped(), ["bound", "unbound"]);
    in_place_by_position(pair()).unwrap();
    assert_eq!(dropped(), ["bound", "after the release"]);
}

impl Noted {
    #[lock_on_argument(name = "drops", locker = here())]
    async fn consumed(self, b: Self) -> Done {
        ready(b.0).await;
        Ok(())
    }

    #[lock_on_argument(name = "drops", locker = here(), on_lost = "error")]
    fn consumed_at_once(self: Box<Self>, _b: Self) -> Done {
        Ok(())
    }
}

#[tokio::test]
async fn receiver_is_dropped_last() {
    Noted("self").consumed(Noted("b")).await.unwrap();
    assert_eq!(dropped(), ["b", "self"]);
    Box::new(Noted("self")).consumed_at_once(Noted("b")).unwrap();
    assert_eq!(dropped(), ["b", "self"]);
}

#[async_trait(?Send)]
trait Consume {
    #[lock_on_argument(name = "drops", locker = state.0, args())]
    async fn consume(self, state: (&locker::Locker, Noted), (_b, c): (Noted, Noted)) -> Done
    where
        Self: Sized,
    {
        ready((c.0, state.0)).await;
        Ok(())
    }

    #[lock_on_argument(name = "drops", locker = state)]
    async fn consume_pattern(self, (state, _a): (&locker::Locker, Noted), b: Noted) -> Done
    where
        Self: Sized,
    {
        ready((b.0, state)).await;
        Ok(())
    }
}

impl Consume for Noted {}

#[tokio::test]
async fn async_trait_keeps_its_drop_order() {
    Noted("self").consume((&here(), Noted("a")), (Noted("b"), Noted("c"))).await.unwrap();
    assert_eq!(dropped(), ["c", "b", "a", "self"]);
    Noted("self").consume_pattern((&here(), Noted("a")), Noted("b")).await.unwrap();
    assert_eq!(
        dropped(),
        ["b", "self", "a"],
        "the pattern that a key or locker needs is unpacked before the body"
    );
}
