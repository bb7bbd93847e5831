use locker::lock_on_argument;

#[lock_on_argument(guard = amount)]
//~ `amount`: `amount` is already a parameter: choose another name for the guard
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
