use locker::lock_on_argument;

#[lock_on_argument(name = "outer", args(0))]
#[lock_on_argument(name = "inner", args(1))]
//~ `1`: `pay` has one parameter, so the only position is 0 (`self` is not counted)
fn pay(account: u64) -> locker::Result<u64> {
    Ok(account)
}

fn main() {}
