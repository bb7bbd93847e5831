//! The attributes in edition 2015, which has no async functions.

#![deny(warnings)]

extern crate locker;

pub mod bank {
    use locker::{limit_concurrency, lock_on_argument, rate_limit, Error, Result};

    #[lock_on_argument(expr = "10s", args(0, amount + 1), guard = lease)]
    pub fn pay(account: u64, amount: u64) -> Result<u64> {
        lease.check()?;
        Ok(account + amount)
    }

    #[rate_limit(size = 5, interval = 1, args(account))]
    #[limit_concurrency(size = 2, args(account), on_lost = "error")]
    #[lock_on_argument(each(account, other))]
    pub fn transfer(account: u64, other: u64) -> Result<u64> {
        Ok(account + other)
    }

    #[::locker::lock_on_argument(args(account), on_error = ::bank::refused)]
    pub fn close(account: u64) -> u64 {
        account
    }

    pub fn refused(_: Error) -> u64 {
        0
    }
}

#[test]
fn functions_are_accepted() {
    assert_eq!(bank::pay(1, 2).unwrap(), 3);
    assert_eq!(bank::transfer(1, 2).unwrap(), 3);
    assert_eq!(bank::close(1), 1);
}
