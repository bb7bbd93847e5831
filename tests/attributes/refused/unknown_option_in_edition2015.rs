extern crate locker;

use locker::lock_on_argument;

#[lock_on_argument(timout = 1)]
//~ `timout`: `lock_on_argument` has no option `timout`; did you mean `timeout`?
pub fn pay() -> locker::Result<()> {
    Ok(())
}

fn main() {}
