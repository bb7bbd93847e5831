use locker::lock_on_argument;

#[lock_on_argument(guard = "lease")]
//~ `"lease"`: `guard` takes a name for the guard, such as `guard = lease`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(guard = true)]
//~ `true`: `guard` takes a name for the guard, such as `guard = lease`
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(guard = _)]
//~ `_`: `guard` takes a name for the guard, such as `guard = lease`
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(guard = self)]
//~ `self`: `guard` takes a name for the guard, such as `guard = lease`
fn pay_4(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
