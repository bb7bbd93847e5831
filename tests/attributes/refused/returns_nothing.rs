use locker::lock_on_argument;

#[lock_on_argument(args(0))]
fn pay(account: u64) {
    drop(account);
}

#[lock_on_argument(args(0))]
async fn pay_later(account: u64) -> ! {
    panic!("{account}")
}

#[lock_on_argument(args(0))]
fn pay_somehow(account: u64) -> impl std::fmt::Display {
    account
}

fn main() {}
