use locker::lock_on_argument;

#[lock_on_argument(expr = 0)]
//~ `0`: `expr` must be longer than zero
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(lease = "0s")]
//~ `"0s"`: `lease` must be longer than zero
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
