use locker::rate_limit;

#[rate_limit(size = 5, interval = 1, algorithm = "leaky")]
//~ `"leaky"`: `algorithm` takes one of "token_bucket", "fixed_window", "gcra"
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
