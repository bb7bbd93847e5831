use locker::{limit_concurrency, lock_on_argument, rate_limit};

#[lock_on_argument(args(account))]
#[lock_on_argument(args(0), timeout = 1)]
//~ `lock_on_argument`: the `lock_on_argument` above has the same key, so every call would wait for itself: give one of them another `name` or other `args`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument]
#[rate_limit(size = 3, interval = 1, args(account))]
#[lock_on_argument(args(), mode = "read")]
//~ `lock_on_argument`: the `lock_on_argument` above has the same key, so every call would wait for itself: give one of them another `name` or other `args`
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(name = "bank.pay", args(account))]
#[lock_on_argument(name = "bank::pay", each(amount, account))]
//~ `lock_on_argument`: the `lock_on_argument` above has the same key, so every call would wait for itself: give one of them another `name` or other `args`
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[rate_limit(size = 3, interval = 1, args(account))]
#[rate_limit(size = 100, interval = "1m", args(account))]
//~ `rate_limit`: the `rate_limit` above has the same key, so every call would count twice: give one of them another `name` or other `args`
fn pay_4(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[limit_concurrency(size = 3)]
#[limit_concurrency(size = 10)]
//~ `limit_concurrency`: the `limit_concurrency` above has the same key, so every call would take two permits, and two calls could wait for each other: give one of them another `name` or other `args`
fn pay_5(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
