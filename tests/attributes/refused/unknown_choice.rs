use locker::lock_on_argument;

#[lock_on_argument(on_lost = "ignore")]
//~ `"ignore"`: `on_lost` takes one of "cancel", "continue", "error"
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(release = "never")]
//~ `"never"`: `release` takes one of "on_return", "on_expiry"
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(on_lost = cancel)]
//~ `cancel`: `on_lost` takes one of "cancel", "continue", "error"
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
