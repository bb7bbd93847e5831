use locker::lock_on_argument;
use std::time::Duration;

const MARGIN: Duration = Duration::from_secs(6);
const HOLD: Duration = Duration::from_secs(60);

#[lock_on_argument(lease = 10, stop_before = MARGIN)]
//~ `MARGIN`: `stop_before` must not be more than half of the lease
fn stops_too_early() -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(max_hold = HOLD, min_hold = "2m")]
//~ `"2m"`: `min_hold` must not be longer than `max_hold`
fn kept_too_long() -> locker::Result<()> {
    Ok(())
}

fn main() {}
