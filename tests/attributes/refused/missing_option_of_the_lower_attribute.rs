use locker::lock_on_argument;

#[lock_on_argument(args(0))]
#[limit_concurrency]
fn pay(account: u64) -> locker::Result<u64> {
    Ok(account)
}

#[lock_on_argument(args(0))]
#[locker::rate_limit(size = 5)]
fn pay_2(account: u64) -> locker::Result<u64> {
    Ok(account)
}

fn main() {}
