use locker::lock_on_argument;
use std::time::Duration;

const ONCE: Duration = Duration::ZERO;

#[lock_on_argument(timeout = ONCE, max_retry = 3)]
//~ `ONCE`: a `timeout` of 0 allows one attempt: remove `max_retry` and `retry_delay`
fn pay(account: u64) -> locker::Result<()> {
    drop(account);
    Ok(())
}

fn main() {}
