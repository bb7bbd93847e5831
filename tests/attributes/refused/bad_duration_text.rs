use locker::lock_on_argument;

#[lock_on_argument(timeout = "ten seconds")]
//~ `"ten seconds"`: not a duration: expected number at 0; write it like "10s", "500ms" or "1m 30s"
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(timeout = "10 parsecs")]
//~ `"10 parsecs"`: not a duration: unknown time unit "parsecs", supported units: ns, us/µs, ms, sec, min, hours, days, weeks, months, years (and few variations); write it like "10s", "500ms" or "1m 30s"
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(expr = -1)]
//~ `-`: a duration cannot be negative
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
