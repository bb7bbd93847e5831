use locker::rate_limit;

#[rate_limit(args(0))]
//~ `#[rate_limit(args(0))]`: `rate_limit` needs `size`: `size = 5, interval = "800ms", args(0)`
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

#[rate_limit(size = 5, args(0))]
//~ `#[rate_limit(size = 5, args(0))]`: `rate_limit` needs `interval`: `size = 5, interval = "800ms", args(0)`
fn call_2(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
