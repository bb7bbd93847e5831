use locker::lock_on_argument;

fn refused(_: locker::Error) -> u64 {
    0
}

#[lock_on_argument(on_error = refused)]
//~ `refused`: E0308
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
