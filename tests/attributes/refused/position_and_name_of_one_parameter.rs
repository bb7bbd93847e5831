use locker::lock_on_argument;

#[lock_on_argument(args(0, account))]
fn pay(account: u64, amount: u64) -> locker::Result<u64> {
    Ok(account + amount)
}

#[lock_on_argument(each(amount, account, 1))]
fn pay_2(account: u64, amount: u64) -> locker::Result<u64> {
    Ok(account + amount)
}

fn main() {}
