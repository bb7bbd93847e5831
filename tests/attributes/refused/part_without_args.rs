use locker::{limit_concurrency, lock_on_argument};

#[lock_on_argument(account)]
//~ `account`: `lock_on_argument` has no option `account`; did you mean `args(account)`?
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[limit_concurrency(size = 3, account, timeout = 1)]
//~ `account`: `limit_concurrency` has no option `account`; did you mean `args(account)`?
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
