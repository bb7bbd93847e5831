use locker::lock_on_argument;

#[lock_on_argument(args(0))]
fn payments(account: u64) -> locker::Result<impl Iterator<Item = u64>> {
//~ `Iterator<Item = u64>`: the lock would end before the work of the returned `Iterator` starts: make it `async fn` and collect the items in its body
    Ok(0..account)
}

trait Stream {}

impl Stream for u64 {}

#[lock_on_argument(args(0))]
fn stream(account: u64) -> impl Stream {
//~ `Stream`: the lock would end before the work of the returned `Stream` starts: make it `async fn` and collect the items in its body
    account
}

#[lock_on_argument(args(0))]
fn sized(account: u64) -> locker::Result<impl ExactSizeIterator<Item = u64>> {
//~ `ExactSizeIterator<Item = u64>`: the lock would end before the work of the returned `ExactSizeIterator` starts: make it `async fn` and collect the items in its body
    Ok(vec![account].into_iter())
}

#[lock_on_argument(args(0))]
fn fused(account: u64) -> locker::Result<Box<dyn std::iter::FusedIterator<Item = u64>>> {
//~ `std::iter::FusedIterator<Item = u64>`: the lock would end before the work of the returned `FusedIterator` starts: make it `async fn` and collect the items in its body
    Ok(Box::new(0..account))
}

trait AsyncIterator {}
trait TryStream {}
trait FusedStream {}

impl AsyncIterator for u64 {}
impl TryStream for u64 {}
impl FusedStream for u64 {}

#[lock_on_argument(args(0))]
fn asynchronous(account: u64) -> impl AsyncIterator {
//~ `AsyncIterator`: the lock would end before the work of the returned `AsyncIterator` starts: make it `async fn` and collect the items in its body
    account
}

#[lock_on_argument(args(0))]
fn fallible(account: u64) -> impl TryStream {
//~ `TryStream`: the lock would end before the work of the returned `TryStream` starts: make it `async fn` and collect the items in its body
    account
}

#[lock_on_argument(args(0))]
fn fused_stream(account: u64) -> impl FusedStream {
//~ `FusedStream`: the lock would end before the work of the returned `FusedStream` starts: make it `async fn` and collect the items in its body
    account
}

fn main() {}
