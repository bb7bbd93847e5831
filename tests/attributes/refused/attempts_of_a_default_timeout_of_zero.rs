use locker::lock_on_argument;

#[lock_on_argument(release = "on_expiry", max_retry = 3, args(form))]
//~ `max_retry`: with `release = "on_expiry"` the default `timeout` is 0, which allows one attempt: set a `timeout`
fn submit(form: u64) -> locker::Result<u64> {
    Ok(form)
}

#[lock_on_argument(retry_delay = "100ms", release = "on_expiry", args(form))]
//~ `retry_delay`: with `release = "on_expiry"` the default `timeout` is 0, which allows one attempt: set a `timeout`
fn submit_2(form: u64) -> locker::Result<u64> {
    Ok(form)
}

#[lock_on_argument(release = "on_expiry", max_retry = 1, args(form))]
fn once(form: u64) -> locker::Result<u64> {
    Ok(form)
}

#[lock_on_argument(release = "on_expiry", max_retry = 3, timeout = "1s", args(form))]
fn submit_patiently(form: u64) -> locker::Result<u64> {
    Ok(form)
}

fn main() {}
