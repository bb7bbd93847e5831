use locker::lock_on_argument;

#[lock_on_argument(on_lost = "cancel")]
//~ `"cancel"`: a plain function cannot be cancelled: make it `async fn`, or use "continue" or "error"
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
