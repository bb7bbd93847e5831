use locker::lock_on_argument;

#[lock_on_argument(args(-1))]
//~ `-1`: positions start at 0 and do not count `self`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
