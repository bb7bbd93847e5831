use locker::{limit_concurrency, rate_limit};

const NONE: u64 = 0;

#[limit_concurrency(size = NONE)]
//~ `NONE`: a size of 0 would let nobody in
fn render(page: u64) -> locker::Result<u64> {
    Ok(page)
}

#[rate_limit(size = NONE, interval = 1)]
//~ `NONE`: a size of 0 would let nobody in
fn call(user: u64) -> locker::Result<u64> {
    Ok(user)
}

fn main() {}
