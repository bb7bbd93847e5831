use locker::lock_on_argument;

#[lock_on_argument]
struct Account;
//~ `struct`: `lock_on_argument` goes on a function with a body, but this is `struct`

#[lock_on_argument]
impl Account {}
//~ `impl`: `lock_on_argument` goes on a function with a body, but this is `impl`

#[lock_on_argument]
pub(crate) enum Kind {}
//~ `enum`: `lock_on_argument` goes on a function with a body, but this is `enum`

#[lock_on_argument]
mod bank {}
//~ `mod`: `lock_on_argument` goes on a function with a body, but this is `mod`

#[lock_on_argument]
const LIMIT: u64 = 1;
//~ `const`: `lock_on_argument` goes on a function with a body, but this is `const`

fn main() {}
