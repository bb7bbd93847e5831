#![deny(unused_variables)]

use locker::lock_on_argument;

#[lock_on_argument(args(0))]
pub async fn pay(account: u64, amount: u64) -> locker::Result<()> {
    Ok(())
}

#[lock_on_argument(args(0), on_lost = "error")]
pub fn pay_now(account: u64, amount: u64) -> locker::Result<()> {
    Ok(())
}

fn main() {}
