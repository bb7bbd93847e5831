use locker::lock_on_argument;

const SECONDS: u64 = 10;

#[lock_on_argument(expr = SECONDS)]
//~ `SECONDS`: E0308
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
