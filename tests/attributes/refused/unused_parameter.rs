#![deny(unused_variables)]

use locker::lock_on_argument;

#[lock_on_argument(args(0))]
pub async fn pay(account: u64, amount: u64) -> locker::Result<()> {
//~ `amount`: unused_variables
    Ok(())
}

#[lock_on_argument(args(0), on_lost = "error")]
pub fn pay_now(account: u64, amount: u64) -> locker::Result<()> {
//~ `amount`: unused_variables
    Ok(())
}

pub struct Order {
    pub id: u64,
}

#[lock_on_argument(args(order.id))]
pub async fn named_like_a_field(order: &Order, id: u64) -> locker::Result<u64> {
//~ `id`: unused_variables
    Ok(order.id)
}

fn main() {}
