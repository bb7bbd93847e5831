use locker::lock_on_argument;

#[lock_on_argument()]
const fn pay(account: u64, amount: u64) -> locker::Result<()> {
//~ `const`: `lock_on_argument` waits, which a `const fn` cannot: remove `const`
    let _ = (account, amount);
    Ok(())
}

fn main() {}
