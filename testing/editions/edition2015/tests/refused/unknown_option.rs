extern crate locker;

use locker::lock_on_argument;

#[lock_on_argument(timout = 1)]
pub fn pay() -> locker::Result<()> {
    Ok(())
}

fn main() {}
