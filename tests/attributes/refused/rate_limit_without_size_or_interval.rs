use locker::rate_limit;

#[rate_limit(args(0))]
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

#[rate_limit(size = 5, args(0))]
fn call_2(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
