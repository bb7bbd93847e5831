use locker::lock_on_argument;

#[lock_on_argument(args(acount))]
//~ `acount`: `pay` has no parameter `acount`; did you mean `account`?
fn pay(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args(unlike))]
//~ `unlike`: `pay_2` has no parameter `unlike`; its parameters are `account`, `amount`
fn pay_2(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

#[lock_on_argument(args(self))]
//~ `self`: `pay_3` has no parameter `self`; its parameters are `account`, `amount`
fn pay_3(account: u64, amount: u64) -> locker::Result<()> {
    drop((account, amount));
    Ok(())
}

fn main() {}
