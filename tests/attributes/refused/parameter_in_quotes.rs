use locker::lock_on_argument;

#[lock_on_argument(args("account"))]
//~ `"account"`: a part of a key cannot be a text: write `account` without quotes
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
