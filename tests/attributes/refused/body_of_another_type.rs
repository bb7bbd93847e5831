use locker::lock_on_argument;

#[lock_on_argument(args(account))]
fn pay(account: u64) -> locker::Result<u64> {
    Ok(account.to_string())
    //~ `account.to_string()`: E0308
}

#[lock_on_argument(args(account))]
fn pay_nothing(account: u64) -> locker::Result<u64> {
//~ `{`: E0308
    drop(account);
}

#[lock_on_argument(args(account))]
fn pay_bare(account: u64) -> locker::Result<u64> {
    account
    //~ `account`: E0308
}

fn main() {}
