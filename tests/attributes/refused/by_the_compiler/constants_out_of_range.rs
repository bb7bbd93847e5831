use locker::{limit_concurrency, lock_on_argument, rate_limit};
use std::time::Duration;

const INSTANT: Duration = Duration::from_nanos(1);
const LONG: Duration = Duration::from_secs(u64::MAX);
const MANY: u64 = u64::MAX;

#[lock_on_argument(lease = INSTANT)]
fn too_short() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(timeout = LONG)]
fn too_patient() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = 5, interval = INSTANT)]
fn interval_too_short() -> locker::Result<()> {
    Ok(())
}

#[limit_concurrency(size = MANY)]
fn size_too_large() -> locker::Result<()> {
    Ok(())
}

fn main() {}
