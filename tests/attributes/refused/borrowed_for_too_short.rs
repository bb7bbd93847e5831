use locker::lock_on_argument;

#[lock_on_argument(args(account))]
async fn owner(account: &str) -> locker::Result<&'static str> {
//~ `locker`: lifetime
    Ok(account)
}

fn main() {}
