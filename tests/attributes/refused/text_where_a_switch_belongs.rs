use locker::lock_on_argument;

#[lock_on_argument(renew = "no")]
//~ `"no"`: `renew` takes `true` or `false`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(fair = 1)]
//~ `1`: `fair` takes `true` or `false`
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
