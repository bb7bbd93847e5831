use locker::lock_on_argument;

#[lock_on_argument(args(0, 2))]
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args(1))]
fn one(account: u64) -> locker::Result<u64> {
    Ok(account)
}

struct Account;

impl Account {
    #[lock_on_argument(args(0))]
    fn close(&self) -> locker::Result<()> {
        Ok(())
    }
}

fn main() {}
