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

#[lock_on_argument(args(acount))]
//~ `acount`: `pay_4` has no parameter `acount`; did you mean `account`?
fn pay_4<const BRANCH: u64>(account: u64) -> locker::Result<()> {
    drop(account);
    Ok(())
}

#[lock_on_argument(args(account))]
//~ `account`: `pay_5` has no parameter `account`; none of its parameters has a name
fn pay_5(_: u64) -> locker::Result<()> {
    Ok(())
}

fn main() {}
