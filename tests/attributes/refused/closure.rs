use locker::lock_on_argument;

fn pay() {
    let _ = #[lock_on_argument]
    |account: u64| account;
    //~ `|`: `lock_on_argument` goes on a function with a body, but this is a closure
}

fn main() {}
