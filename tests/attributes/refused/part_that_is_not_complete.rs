use locker::lock_on_argument;

struct Order {
    id: u64,
}

#[lock_on_argument(expr = 10, args(order.))]
//~ `)`: unexpected end of input, expected identifier or integer
fn ship(order: &Order) -> locker::Result<u64> {
    Ok(order.id)
}

#[lock_on_argument(each(from.id, &), name = "orders")]
//~ `)`: unexpected end of input, expected an expression
fn swap(from: &Order) -> locker::Result<u64> {
    Ok(from.id)
}

fn main() {}
