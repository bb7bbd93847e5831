use locker::{limit_concurrency, lock_on_argument};

#[lock_on_argument(mode = "shared")]
fn show(page: u64) -> locker::Result<u64> {
    Ok(page)
}

#[limit_concurrency(size = 3, mode = "read")]
fn render(page: u64) -> locker::Result<u64> {
    Ok(page)
}

fn main() {}
