use locker::lock_on_argument;

#[lock_on_argument(each())]
//~ `each`: `each` takes one lock per part: name at least one, such as `each(from, to)`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
