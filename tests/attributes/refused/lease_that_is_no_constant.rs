use locker::lock_on_argument;

#[lock_on_argument(expr = std::time::Duration::from_secs({ let more = 1; account + more }))]
//~ `account`: E0435
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
