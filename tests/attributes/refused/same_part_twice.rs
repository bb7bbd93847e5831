use locker::lock_on_argument;

#[lock_on_argument(args(0, 1, 0))]
//~ `0`: position `0` is given twice: remove one
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args(account, amount, account))]
//~ `account`: `account` is given twice: remove one
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
