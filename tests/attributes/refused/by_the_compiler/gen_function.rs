use locker::lock_on_argument;

#[lock_on_argument(args(0))]
gen fn payments(account: u64) -> u64 {
    yield account;
}

fn main() {}
