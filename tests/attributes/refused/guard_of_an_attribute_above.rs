use locker::{limit_concurrency, lock_on_argument};

#[lock_on_argument(args(account), guard = lease)]
#[limit_concurrency(size = 3, guard = lease)]
//~ `lease`: `lease` is already the guard of an attribute above: choose another name for this one
async fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
