use locker::lock_on_argument;

#[lock_on_argument(locker = "redis://")]
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
