use locker::{limit_concurrency, lock_on_argument, rate_limit};

#[lock_on_argument(lease = "10us")]
fn too_short() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(expr = "11years")]
fn too_long() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(timeout = 1_000_000_000)]
fn too_patient() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(retry_delay = 0)]
fn too_often() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(max_hold = 0.0001)]
fn held_too_shortly() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(max_retry = 4294967296)]
fn tried_too_often() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = 5, interval = "1ns")]
fn interval_too_short() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = 5, interval = 1, algorithm = "gcra", burst = 18446744073709551615)]
fn burst_too_large() -> locker::Result<()> {
    Ok(())
}

#[limit_concurrency(size = 9007199254740992)]
fn size_too_large() -> locker::Result<()> {
    Ok(())
}

fn main() {}
