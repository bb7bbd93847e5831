use locker::lock_on_argument;

#[lock_on_argument(renew = false, max_hold = "1m")]
//~ `max_hold`: `max_hold` limits the renewal, but `renew = false` switches it off: remove one of them
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
