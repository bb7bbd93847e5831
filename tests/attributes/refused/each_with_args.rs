use locker::lock_on_argument;

#[lock_on_argument(each(0, 1), args(0))]
//~ `args`: `args` makes one lock of all parts, `each` one lock per part: remove one of them
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
