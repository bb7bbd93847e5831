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

fn main() {}
