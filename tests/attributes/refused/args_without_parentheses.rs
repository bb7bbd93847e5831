use locker::lock_on_argument;

#[lock_on_argument(args = (0, 1))]
//~ `=`: `args` takes its parts in parentheses: `args(0, account)`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args)]
//~ `args`: `args` takes its parts in parentheses: `args(0, account)`
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args = [account])]
//~ `=`: `args` takes its parts in parentheses: `args(0, account)`
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args[0])]
//~ `[`: `args` takes its parts in parentheses: `args(0, account)`
fn pay_4(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
