use locker::lock_on_argument;

trait Pay {
    #[lock_on_argument(args(0))]
    async fn pay(&self, account: u64) -> locker::Result<()>;
}

fn main() {}
