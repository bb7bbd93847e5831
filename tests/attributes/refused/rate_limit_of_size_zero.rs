use locker::rate_limit;

#[rate_limit(size = 0, interval = 1)]
//~ `0`: `size` takes a whole number from 1, without suffix, or a constant
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

#[rate_limit(size = 5, interval = "0s")]
//~ `"0s"`: `interval` must be longer than zero
fn call_2(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
