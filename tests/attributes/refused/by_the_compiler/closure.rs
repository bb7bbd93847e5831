use locker::lock_on_argument;

fn pay() {
    let _ = #[lock_on_argument]
    |account: u64| account;
}

fn main() {}
