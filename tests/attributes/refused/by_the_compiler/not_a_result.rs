use locker::lock_on_argument;

type Receipt = u64;

#[lock_on_argument(args(0))]
fn pay(account: u64) -> Receipt {
    account
}

#[lock_on_argument(args(0))]
async fn pay_later(account: u64) -> Option<u64> {
    Some(account)
}

fn main() {}
