use locker::lock_on_argument;

#[lock_on_argument(expr = 10s)]
//~ `10s`: a number of seconds has no suffix: write 10, or a text such as "10s"
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
