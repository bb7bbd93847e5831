use locker::lock_on_argument;

#[lock_on_argument(args(0))]
#[limit_concurrency]
//~ `limit_concurrency`: `limit_concurrency` needs `size`: `size = 10, expr = 60, args(0)`
fn pay(account: u64) -> locker::Result<u64> {
    Ok(account)
}

#[lock_on_argument(args(0))]
#[locker::rate_limit(size = 5)]
//~ `locker`: `rate_limit` needs `interval`: `size = 5, interval = "800ms", args(0)`
fn pay_2(account: u64) -> locker::Result<u64> {
    Ok(account)
}

fn main() {}
