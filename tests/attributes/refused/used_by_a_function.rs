use locker::lock_on_argument;

#[lock_on_argument(__used)]
//~ `__used`: `__used` is reserved for generated code: remove it
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    let _ = (account, amount);
    Ok(())
}

fn main() {
    let _ = pay(1, 2);
}
