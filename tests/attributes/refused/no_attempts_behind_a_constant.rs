use locker::lock_on_argument;

const NONE: u32 = 0;

#[lock_on_argument(max_retry = NONE)]
//~ `NONE`: `max_retry` counts attempts: at least 1
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
