use locker::lock_on_argument;

#[lock_on_argument(args(0, account))]
//~ `0`: position 0 is the whole value of a pattern, and its bindings are parts of a key too: use the position or the names
fn pay((account, amount): (u64, u64)) -> locker::Result<u64> {
    Ok(account + amount)
}

fn main() {}
