use locker::lock_on_argument;

#[lock_on_argument(max_retry = 0)]
//~ `0`: `max_retry` takes a whole number from 1, without suffix, or a constant
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
