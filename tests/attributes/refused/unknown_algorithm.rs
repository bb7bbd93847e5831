use locker::rate_limit;

#[rate_limit(size = 5, interval = 1, algorithm = "leaky")]
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
