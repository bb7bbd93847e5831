use locker::{limit_concurrency, lock_on_argument};

#[lock_on_argument(account)]
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[limit_concurrency(size = 3, account, timeout = 1)]
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
