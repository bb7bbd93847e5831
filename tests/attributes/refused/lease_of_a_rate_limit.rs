use locker::rate_limit;

#[rate_limit(size = 5, interval = 1, expr = 10)]
//~ `expr`: `expr` is an option of `lock_on_argument`, `limit_concurrency`, `leader`, `once_per` and `idempotent`, not of `rate_limit`
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

#[rate_limit(size = 5, interval = 1, guard = lease)]
//~ `guard`: `guard` is an option of `lock_on_argument`, `limit_concurrency`, `leader`, `once_per` and `idempotent`, not of `rate_limit`
fn call_2(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
