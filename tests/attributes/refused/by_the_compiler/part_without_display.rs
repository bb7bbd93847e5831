use locker::lock_on_argument;

struct Order {
    id: u64,
}

#[lock_on_argument(args(0))]
fn pay(order: &Order) -> locker::Result<u64> {
    Ok(order.id)
}

#[lock_on_argument(args(order.id, Some(order.id)))]
async fn pay_later(order: &Order) -> locker::Result<u64> {
    Ok(order.id)
}

fn main() {}
