use locker::lock_on_argument;

#[lock_on_argument(name = bank)]
//~ `bank`: `name` takes a text in quotes such as "bank.withdraw", not a constant
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(name = "")]
//~ `""`: `name` takes a text that is not empty
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
