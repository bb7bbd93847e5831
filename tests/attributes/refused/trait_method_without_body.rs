use locker::lock_on_argument;

trait Pay {
    #[lock_on_argument(args(0))]
    async fn pay(&self, account: u64) -> locker::Result<()>;
    //~ `pay`: `lock_on_argument` needs a function with a body: put it on the implementations of this one
}

fn main() {}
