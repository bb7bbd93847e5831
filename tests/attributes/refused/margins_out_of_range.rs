use locker::{limit_concurrency, lock_on_argument, rate_limit};

#[lock_on_argument(lease = "10s", stop_before = "6s")]
//~ `"6s"`: stop_before 6s is more than half of the lease 10s
fn stops_too_early() -> locker::Result<()> {
    Ok(())
}

#[limit_concurrency(size = 2, max_hold = "1m", min_hold = "2m")]
//~ `"2m"`: `min_hold` must not be longer than `max_hold`
fn kept_too_long() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(release = "on_expiry", min_hold = "2m")]
//~ `min_hold`: `min_hold` has no effect beside `release = "on_expiry"`: the hold ends with its lease: remove one
fn kept_twice() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(min_hold = "11years")]
//~ `"11years"`: `min_hold` must be at most 10 years
fn kept_for_ever() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = 5, interval = 1, min_hold = 1)]
//~ `min_hold`: `min_hold` is an option of `lock_on_argument`, `limit_concurrency`, `leader`, `once_per` and `idempotent`, not of `rate_limit`
fn limited() -> locker::Result<()> {
    Ok(())
}

fn main() {}
