use locker::lock_on_argument;

struct Order {
    id: u64,
}

#[lock_on_argument(args(0))]
//~ `0`: `&Order` cannot be part of a lock key: implement Display or pass a field such as `args(order.id)`
//~ `0`: a key is made of what `Display` writes
fn pay(order: &Order) -> locker::Result<u64> {
    Ok(order.id)
}

#[lock_on_argument(args(order.id, Some(order.id)))]
//~ `Some`: `Option<u64>` cannot be part of a lock key: implement Display or pass a field such as `args(order.id)`
async fn pay_later(order: &Order) -> locker::Result<u64> {
    Ok(order.id)
}

fn main() {}
