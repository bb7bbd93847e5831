use locker::lock_on_argument;

#[lock_on_argument(expr = 10, max_hold = "1s")]
//~ `"1s"`: `max_hold` must not be shorter than the lease
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
