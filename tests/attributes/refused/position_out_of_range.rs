use locker::lock_on_argument;

#[lock_on_argument(args(0, 2))]
//~ `2`: `pay` has 2 parameters, so positions go from 0 to 1 (`self` is not counted)
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args(1))]
//~ `1`: `one` has one parameter, so the only position is 0 (`self` is not counted)
fn one(account: u64) -> locker::Result<u64> {
    Ok(account)
}

struct Account;

impl Account {
    #[lock_on_argument(args(0))]
    //~ `0`: `close` has no parameters, so there is no position 0 (`self` is not counted)
    fn close(&self) -> locker::Result<()> {
        Ok(())
    }
}

fn main() {}
