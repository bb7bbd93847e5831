use locker::lock_on_argument;
use std::time::Duration;

const LEASE: Duration = Duration::ZERO;

#[lock_on_argument(expr = LEASE)]
//~ `LEASE`: this duration must be longer than zero
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
