use locker::lock_on_argument;

#[lock_on_argument]
struct Account;

#[lock_on_argument]
impl Account {}

#[lock_on_argument]
pub(crate) enum Kind {}

#[lock_on_argument]
mod bank {}

#[lock_on_argument]
const LIMIT: u64 = 1;

fn main() {}
