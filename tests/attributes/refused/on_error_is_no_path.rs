use locker::lock_on_argument;

#[lock_on_argument(on_error = |error| Err(error))]
//~ `|error| Err(error)`: `on_error` takes a path to a function `fn(locker::Error) -> ReturnType`, not a closure
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
