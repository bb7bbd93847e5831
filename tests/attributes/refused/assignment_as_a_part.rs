use locker::lock_on_argument;

#[lock_on_argument(args(account = 1))]
fn pay(mut account: u64) -> locker::Result<u64> {
    account += 1;
    Ok(account)
}

#[lock_on_argument(args(account += 1))]
fn pay_2(mut account: u64) -> locker::Result<u64> {
    account += 1;
    Ok(account)
}

fn main() {}
