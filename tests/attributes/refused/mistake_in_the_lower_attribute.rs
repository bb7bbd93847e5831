use locker::lock_on_argument;

#[lock_on_argument(name = "outer", args(0))]
#[lock_on_argument(name = "inner", args(1))]
fn pay(account: u64) -> locker::Result<u64> {
    Ok(account)
}

fn main() {}
