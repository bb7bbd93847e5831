use locker::lock_on_argument;

#[lock_on_argument(args(0, account))]
fn pay((account, amount): (u64, u64)) -> locker::Result<u64> {
    Ok(account + amount)
}

fn main() {}
