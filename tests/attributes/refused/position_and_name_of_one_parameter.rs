use locker::lock_on_argument;

#[lock_on_argument(args(0, account))]
//~ `account`: `account` is given twice, by name and as position 0: remove one
fn pay(account: u64, amount: u64) -> locker::Result<u64> {
    Ok(account + amount)
}

#[lock_on_argument(each(amount, account, 1))]
//~ `1`: `amount` is given twice, by name and as position 1: remove one
fn pay_2(account: u64, amount: u64) -> locker::Result<u64> {
    Ok(account + amount)
}

fn main() {}
