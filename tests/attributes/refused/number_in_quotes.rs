use locker::lock_on_argument;

#[lock_on_argument(max_retry = "3")]
//~ `"3"`: `max_retry` takes a whole number from 1, without suffix, or a constant
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(expr = "10")]
//~ `"10"`: not a duration: time unit needed, for example 10sec or 10ms; write it like "10s", "500ms" or "1m 30s"
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
