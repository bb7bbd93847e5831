use locker::lock_on_argument;

#[lock_on_argument(expr = 60 * 5)]
//~ `60`: a duration is a number of seconds, a text such as "10s", or a constant of type `Duration`, such as `Duration::from_secs(60 * 5)`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(timeout = None)]
//~ `None`: a duration is a number of seconds, a text such as "10s", or a constant of type `Duration`
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
