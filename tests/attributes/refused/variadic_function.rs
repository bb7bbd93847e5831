#![allow(varargs_without_pattern)]

use locker::lock_on_argument;

#[lock_on_argument(args(0))]
unsafe extern "C" fn pay(account: u64, ...) -> locker::Result<()> {
//~ `.`: `lock_on_argument` does not support variadic functions
    Ok(())
}

fn main() {}
