use locker::{limit_concurrency, lock_on_argument};

#[lock_on_argument(timeout = 0, max_retry = 3, args(form))]
//~ `max_retry`: a `timeout` of 0 allows one attempt: remove this option, or set a longer `timeout`
fn number(form: u64) -> locker::Result<u64> {
    Ok(form)
}

#[lock_on_argument(retry_delay = "100ms", args(form), timeout = "0s")]
//~ `retry_delay`: a `timeout` of 0 allows one attempt: remove this option, or set a longer `timeout`
fn text(form: u64) -> locker::Result<u64> {
    Ok(form)
}

#[limit_concurrency(size = 1, timeout = 0.0, retry_delay = 1, max_retry = ATTEMPTS)]
//~ `max_retry`: a `timeout` of 0 allows one attempt: remove this option, or set a longer `timeout`
async fn fraction() -> locker::Result<()> {
    Ok(())
}

const ATTEMPTS: u32 = 1;

#[lock_on_argument(timeout = 0, args(form))]
fn without_attempts(form: u64) -> locker::Result<u64> {
    Ok(form)
}

fn main() {}
