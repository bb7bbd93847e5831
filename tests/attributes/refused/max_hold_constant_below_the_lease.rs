use locker::lock_on_argument;
use std::time::Duration;

const HOLD: Duration = Duration::from_secs(1);

#[lock_on_argument(expr = 10, max_hold = HOLD)]
//~ `HOLD`: `max_hold` must not be shorter than the lease
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
