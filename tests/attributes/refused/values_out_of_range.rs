use locker::{limit_concurrency, lock_on_argument, rate_limit};

#[lock_on_argument(lease = "10us")]
//~ `"10us"`: `lease` must be at least 1ms
fn too_short() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(expr = "11years")]
//~ `"11years"`: `expr` must be at most 10 years
fn too_long() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(timeout = 1_000_000_000)]
//~ `1_000_000_000`: `timeout` must be at most 10 years
fn too_patient() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(retry_delay = 0)]
//~ `0`: `retry_delay` must be longer than zero
fn too_often() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(max_hold = 0.0001)]
//~ `0.0001`: `max_hold` must be at least 1ms
fn held_too_shortly() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(max_retry = 4294967296)]
//~ `4294967296`: `max_retry` takes a number up to 4294967295
fn tried_too_often() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = 5, interval = "1ns")]
//~ `"1ns"`: `interval` must be at least 1µs
fn interval_too_short() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = 5, interval = 1, algorithm = "gcra", burst = 18446744073709551615)]
//~ `18446744073709551615`: `burst` takes a number up to 9007199254740991
fn burst_too_large() -> locker::Result<()> {
    Ok(())
}

#[limit_concurrency(size = 9007199254740992)]
//~ `9007199254740992`: `size` takes a number up to 9007199254740991
fn size_too_large() -> locker::Result<()> {
    Ok(())
}

fn main() {}
