use locker::lock_on_argument;

#[lock_on_argument(args(1.5))]
//~ `1.5`: a part of a key is a position, the name of a parameter, or an expression over the parameters
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args(0u8))]
//~ `0u8`: a part of a key is a position, the name of a parameter, or an expression over the parameters
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args(..))]
//~ `..`: a part of a key is a position, the name of a parameter, or an expression over the parameters
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
