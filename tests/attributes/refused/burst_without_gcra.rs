use locker::rate_limit;

#[rate_limit(size = 5, interval = 1, burst = 3)]
//~ `burst`: `burst` needs `algorithm = "gcra"`
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

#[rate_limit(size = 5, interval = 1, burst = 3, algorithm = "token_bucket")]
//~ `burst`: `burst` needs `algorithm = "gcra"`
fn call_2(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
