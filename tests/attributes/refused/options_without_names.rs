use locker::lock_on_argument;

#[lock_on_argument(10, 0, 1)]
//~ `10`: options of `lock_on_argument` are written with their names, such as `expr = 10, args(0, 1)`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
