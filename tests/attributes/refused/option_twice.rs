use locker::lock_on_argument;

#[lock_on_argument(expr = 10, timeout = 1, timeout = 2)]
//~ `timeout`: `timeout` is given twice: remove one
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(expr = 10, lease = "10s")]
//~ `lease`: `lease` is another name for `expr`, which is already given: remove one
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
