use locker::lock_on_argument;
use std::{future::Future, pin::Pin};

#[lock_on_argument(args(0))]
fn pay(account: u64) -> impl Future<Output = locker::Result<u64>> {
//~ `Future<Output = locker::Result<u64>>`: the lock would end before the work of the returned `Future` starts: make it `async fn`
    async move { Ok(account) }
}

#[lock_on_argument(args(0))]
fn pay_boxed(account: u64) -> Pin<Box<dyn Future<Output = locker::Result<u64>> + Send>> {
//~ `Future<Output = locker::Result<u64>>`: the lock would end before the work of the returned `Future` starts: make it `async fn`
    Box::pin(async move { Ok(account) })
}

#[lock_on_argument(args(0))]
fn pay_aliased(account: u64) -> BoxFuture<'static, locker::Result<u64>> {
//~ `BoxFuture<'static, locker::Result<u64>>`: the lock would end before the work of the returned `BoxFuture` starts: make it `async fn`
    Box::pin(async move { Ok(account) })
}

trait TryFuture {}
trait FusedFuture {}

impl TryFuture for u64 {}
impl FusedFuture for u64 {}

#[lock_on_argument(args(0))]
fn pay_fallibly(account: u64) -> impl TryFuture {
//~ `TryFuture`: the lock would end before the work of the returned `TryFuture` starts: make it `async fn`
    account
}

#[lock_on_argument(args(0))]
fn pay_fused(account: u64) -> impl FusedFuture {
//~ `FusedFuture`: the lock would end before the work of the returned `FusedFuture` starts: make it `async fn`
    account
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

fn main() {}
