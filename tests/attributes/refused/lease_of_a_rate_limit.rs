use locker::rate_limit;

#[rate_limit(size = 5, interval = 1, expr = 10)]
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

#[rate_limit(size = 5, interval = 1, guard = lease)]
fn call_2(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
