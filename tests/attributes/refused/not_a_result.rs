use locker::lock_on_argument;

type Receipt = u64;

#[lock_on_argument(args(0))]
fn pay(account: u64) -> Receipt {
//~ `Receipt`: `u64` cannot say that the lock was not acquired: return `Result<_, E>` with `E: From<locker::Error>`, or add `on_error = path`
//~ `Receipt`: not a `Result`
    account
}

#[lock_on_argument(args(0))]
async fn pay_later(account: u64) -> Option<u64> {
//~ `Option<u64>`: `Option<u64>` cannot say that the lock was not acquired: return `Result<_, E>` with `E: From<locker::Error>`, or add `on_error = path`
    Some(account)
}

fn main() {}
