use locker::limit_concurrency;

#[limit_concurrency(expr = 60, args(0))]
//~ `#[limit_concurrency(expr = 60, args(0))]`: `limit_concurrency` needs `size`: `size = 10, expr = 60, args(0)`
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

#[limit_concurrency(size = 5, each(0))]
//~ `each`: `each` is an option of `lock_on_argument`, not of `limit_concurrency`
fn call_each(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
