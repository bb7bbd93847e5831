//! Bodies on one line, which have lints of their own, and types that only they write out.

use crate::support::{Done, LOCKER};
use async_trait::async_trait;
use locker::{Error, limit_concurrency, lock_on_argument, rate_limit};
use std::{borrow::Cow, collections::HashMap, fmt::Display, slice};

#[lock_on_argument(args(k), locker = LOCKER)]
async fn asynchronous(k: u8) -> Done<u64> { Ok(k.into()) }

#[lock_on_argument(args(k), locker = LOCKER, on_lost = "error")]
async fn checked(k: u8) -> Done<Vec<u8>> { Ok((0..k).collect()) }

#[lock_on_argument(args(k), locker = LOCKER, on_lost = "continue")]
async fn continues<'a>(k: Cow<'a, str>) -> Done<Cow<'a, str>> { Ok(k) }

#[lock_on_argument(args(k), locker = LOCKER)]
fn plain<'a>(k: &'a str, map: &'a HashMap<&'a str, Vec<u8>>) -> Done<slice::Iter<'a, u8>> { Ok(map[k].iter()) }

#[lock_on_argument(args(k), locker = LOCKER, on_lost = "error")]
fn plain_checked(k: u8) -> Done<u16> { Ok(k.into()) }

#[lock_on_argument(args(k), locker = LOCKER)]
fn opaque(k: u8) -> Done<impl Fn(u8) -> u8> { Ok(move |more| more + k) }

#[lock_on_argument(args(k), locker = LOCKER)]
async fn async_opaque(k: u8) -> Done<impl Fn(u8) -> u8> { Ok(move |more| more + k) }

#[lock_on_argument(args(k), locker = LOCKER)]
async fn lazy(k: u8) -> Done<impl ExactSizeIterator<Item = u8>> { Ok(0..k) }

#[rate_limit(size = 5, interval = 1, args(0), locker = LOCKER)]
#[limit_concurrency(size = 5, args(0), locker = LOCKER)]
async fn stacked(k: u8) -> Done<u8> { Ok(k) }

#[rate_limit(size = 5, interval = 1, args(0), locker = LOCKER)]
fn limited(k: u8) -> Done<u8> { Ok(k) }

#[lock_on_argument(args(k), on_error = drop, locker = LOCKER)]
async fn nothing(k: u8) { if k == 0 { return; } drop(k.to_string()) }

#[lock_on_argument(args(k), on_error = drop, locker = LOCKER)]
fn plain_nothing(k: u8) { if k == 0 { return; } drop(k.to_string()) }

#[lock_on_argument(args(k), on_error = panic, locker = LOCKER)]
fn diverging(k: u8) -> u8 { panic!("{k}") }

fn panic(_: Error) -> u8 { 0 }

#[async_trait]
trait Shop {
    #[lock_on_argument(args(k), locker = LOCKER)]
    async fn sell(&self, k: u8) -> Done<u8> { Ok(k) }
}

#[async_trait]
impl Shop for str {}

trait Length { fn length(&self) -> Done<usize>; }

impl<T: Display> Length for [T] {
    #[lock_on_argument(args(self.len()), locker = LOCKER)]
    fn length(&self) -> Done<usize> { Ok(self.len()) }
}

impl Length for dyn Display + Send {
    #[lock_on_argument(args(self), locker = LOCKER)]
    fn length(&self) -> Done<usize> { Ok(self.to_string().len()) }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the expressions matter, not the type")]
#[lock_on_argument(args({ k + 1 }, if *k > 1 { 2 } else { 3 }, u16::from(*k), match k { 1 => "a", _ => "b" }, k.checked_add(1).unwrap_or_default(), format!("{k}"), -1 + 2, !k), locker = LOCKER)]
fn expressions(k: &u8) -> Done<u8> { Ok(*k) }

#[tokio::test]
async fn bodies_on_one_line_are_accepted() {
    assert_eq!(asynchronous(1).await.unwrap(), 1);
    assert_eq!(checked(2).await.unwrap(), [0, 1]);
    assert_eq!(continues("a".into()).await.unwrap(), "a");
    assert_eq!(plain("a", &HashMap::from([("a", vec![1])])).unwrap().len(), 1);
    assert_eq!(plain_checked(1).unwrap(), 1);
    assert_eq!(opaque(1).unwrap()(2), 3);
    assert_eq!(async_opaque(1).await.unwrap()(2), 3);
    assert_eq!(lazy(3).await.unwrap().len(), 3);
    assert_eq!(stacked(1).await.unwrap() + limited(1).unwrap(), 2);
    nothing(1).await;
    plain_nothing(1);
    std::panic::catch_unwind(|| diverging(1)).unwrap_err();
    assert_eq!("shop".sell(1).await.unwrap(), 1);
    assert_eq!([1, 2][..].length().unwrap(), 2);
    assert_eq!((&12 as &(dyn Display + Send)).length().unwrap(), 2);
    assert_eq!(expressions(&1).unwrap(), 1);
}
