use locker::lock_on_argument;

#[lock_on_argument(args(account = 1))]
//~ `account = 1`: a part of a key is a position, the name of a parameter, or an expression over the parameters
fn pay(mut account: u64) -> locker::Result<u64> {
    account += 1;
    Ok(account)
}

#[lock_on_argument(args(account += 1))]
//~ `account += 1`: a part of a key is a position, the name of a parameter, or an expression over the parameters
fn pay_2(mut account: u64) -> locker::Result<u64> {
    account += 1;
    Ok(account)
}

fn main() {}
