use locker::lock_on_argument;

#[lock_on_argument(args(0))]
fn payments(account: u64) -> locker::Result<impl Iterator<Item = u64>> {
    Ok(0..account)
}

trait Stream {}

impl Stream for u64 {}

#[lock_on_argument(args(0))]
fn stream(account: u64) -> impl Stream {
    account
}

#[lock_on_argument(args(0))]
fn sized(account: u64) -> locker::Result<impl ExactSizeIterator<Item = u64>> {
    Ok(vec![account].into_iter())
}

#[lock_on_argument(args(0))]
fn fused(account: u64) -> locker::Result<Box<dyn std::iter::FusedIterator<Item = u64>>> {
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
    account
}

#[lock_on_argument(args(0))]
fn fallible(account: u64) -> impl TryStream {
    account
}

#[lock_on_argument(args(0))]
fn fused_stream(account: u64) -> impl FusedStream {
    account
}

fn main() {}
