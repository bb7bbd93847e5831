use locker::lock_on_argument;

#[lock_on_argument(args(0))]
gen fn payments(account: u64) -> u64 {
//~ `gen`: `lock_on_argument` does not support `gen` functions: make it `async fn`
    yield account;
}

fn main() {}
