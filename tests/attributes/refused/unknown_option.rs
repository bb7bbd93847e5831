use locker::{limit_concurrency, lock_on_argument};

#[lock_on_argument(timout = 1)]
//~ `timout`: `lock_on_argument` has no option `timout`; did you mean `timeout`?
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(colour = "red")]
//~ `colour`: `lock_on_argument` has no option `colour`; its options are `args`, `name`, `timeout`, `on_error`, `locker`, `crate`, `lease`, `expr`, `expire`, `max_retry`, `retry_delay`, `renew`, `max_hold`, `stop_before`, `min_hold`, `release`, `fair`, `on_lost`, `guard`, `each`, `mode`
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(burst = 3)]
//~ `burst`: `burst` is an option of `rate_limit`, not of `lock_on_argument`
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(ttl = 10)]
//~ `ttl`: `lock_on_argument` has no option `ttl`; did you mean `lease`?
fn pay_4(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(retries = 3)]
//~ `retries`: `lock_on_argument` has no option `retries`; did you mean `max_retry`?
fn pay_5(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(wait = 5)]
//~ `wait`: `lock_on_argument` has no option `wait`; did you mean `timeout`?
fn pay_6(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(key(account))]
//~ `key`: `lock_on_argument` has no option `key`; did you mean `args`?
fn pay_7(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[limit_concurrency(limit = 3)]
//~ `limit`: `limit_concurrency` has no option `limit`; did you mean `size`?
fn pay_8(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
