use locker::lock_on_argument;

struct BankError;

#[lock_on_argument(args(0))]
fn pay(account: u64) -> Result<u64, BankError> {
//~ `Result<u64, BankError>`: the error type `BankError` cannot say that the lock was not acquired: implement `From<locker::Error>` for it, or add `on_error = path`
//~ `Result<u64, BankError>`: no `From<locker::Error>`
    Ok(account)
}

#[lock_on_argument(args(0))]
async fn pay_later(account: u64) -> Result<u64, BankError> {
//~ `Result<u64, BankError>`: the error type `BankError` cannot say that the lock was not acquired: implement `From<locker::Error>` for it, or add `on_error = path`
//~ `Result<u64, BankError>`: no `From<locker::Error>`
    Ok(account)
}

fn main() {}
