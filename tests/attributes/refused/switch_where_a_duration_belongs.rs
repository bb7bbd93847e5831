use locker::lock_on_argument;

#[lock_on_argument(timeout = true)]
//~ `true`: a duration is a number of seconds, a text such as "10s", or a constant of type `Duration`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
