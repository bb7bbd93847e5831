use locker::lock_on_argument;

#[lock_on_argument(locker = "redis://")]
//~ `"redis://"`: `&str` is not a locker: `locker = ..` takes a `Locker`, or anything that dereferences to one, such as `Arc<Locker>` or `LazyLock<Locker>`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
