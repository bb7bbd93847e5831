use locker::{limit_concurrency, lock_on_argument, rate_limit};
use std::time::Duration;

const INSTANT: Duration = Duration::from_nanos(1);
const LONG: Duration = Duration::from_secs(u64::MAX);
const MANY: u64 = u64::MAX;

#[lock_on_argument(lease = INSTANT)]
//~ `INSTANT`: this duration must be at least 1ms
fn too_short() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(timeout = LONG)]
//~ `LONG`: this duration must be at most 10 years
fn too_patient() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = 5, interval = INSTANT)]
//~ `INSTANT`: this duration must be at least 1µs
fn interval_too_short() -> locker::Result<()> {
    Ok(())
}

#[limit_concurrency(size = MANY)]
//~ `MANY`: this is more than can be counted: at most 9007199254740991
fn size_too_large() -> locker::Result<()> {
    Ok(())
}

fn main() {}
