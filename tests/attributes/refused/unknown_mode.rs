use locker::{limit_concurrency, lock_on_argument};

#[lock_on_argument(mode = "shared")]
//~ `"shared"`: `mode` takes one of "read", "write"
fn show(page: u64) -> locker::Result<u64> {
    Ok(page)
}

#[limit_concurrency(size = 3, mode = "read")]
//~ `mode`: `mode` is an option of `lock_on_argument`, not of `limit_concurrency`
fn render(page: u64) -> locker::Result<u64> {
    Ok(page)
}

fn main() {}
