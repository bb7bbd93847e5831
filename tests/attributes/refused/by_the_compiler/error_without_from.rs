use locker::lock_on_argument;

struct BankError;

#[lock_on_argument(args(0))]
fn pay(account: u64) -> Result<u64, BankError> {
    Ok(account)
}

#[lock_on_argument(args(0))]
async fn pay_later(account: u64) -> Result<u64, BankError> {
    Ok(account)
}

fn main() {}
