use locker::lock_on_argument;

#[lock_on_argument(expr)]
//~ `expr`: `expr` takes a value: `expr = ..`
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(expr =)]
//~ `=`: `expr =` lacks a value
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(expr(10))]
//~ `(`: `expr` takes a value: `expr = ..`
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(timeout = 1 expr = 10)]
//~ `expr`: expected `,`
fn pay_4(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
