use locker::{limit_concurrency, lock_on_argument, rate_limit};

#[limit_concurrency(size = 5u8)]
//~ `5u8`: `size` takes a whole number from 1, without suffix, or a constant
fn enter() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = -1, interval = 1)]
//~ `-`: `size` takes a whole number from 1, without suffix, or a constant
fn call() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(max_retry = !0)]
//~ `!`: `max_retry` takes a whole number from 1, without suffix, or a constant
fn pay() -> locker::Result<()> {
    Ok(())
}

#[limit_concurrency(size = 2.0)]
//~ `2.0`: `size` takes a whole number from 1, without suffix, or a constant
fn leave() -> locker::Result<()> {
    Ok(())
}

fn main() {}
