use locker::lock_on_argument;

#[lock_on_argument(each(0, 1), guard = lease)]
//~ `guard`: `guard` binds the guard of one lock, but `each` takes several: remove one of them
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
