use locker::lock_on_argument;

#[lock_on_argument(args(0))]
fn pay(account: u64) {
//~ `pay`: `pay` must return `Result<_, E>` with `E: From<locker::Error>`, or set `on_error`: acquiring can fail
    drop(account);
}

#[lock_on_argument(args(0))]
async fn pay_later(account: u64) -> ! {
//~ `!`: `pay_later` must return `Result<_, E>` with `E: From<locker::Error>`, or set `on_error`: acquiring can fail
    panic!("{account}")
}

#[lock_on_argument(args(0))]
fn pay_somehow(account: u64) -> impl std::fmt::Display {
//~ `impl`: `pay_somehow` must return `Result<_, E>` with `E: From<locker::Error>`, or set `on_error`: acquiring can fail
    account
}

fn main() {}
