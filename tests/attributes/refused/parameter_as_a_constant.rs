use locker::{limit_concurrency, lock_on_argument};
use std::time::Duration;

#[lock_on_argument(expr = lease)]
fn pay(lease: Duration) -> locker::Result<()> {
    drop(lease);
    Ok(())
}

#[lock_on_argument(timeout = Duration::from_secs(1 + seconds))]
async fn pay_2(seconds: u64) -> locker::Result<()> {
    drop(seconds);
    Ok(())
}

struct Pool(u64);

impl Pool {
    #[limit_concurrency(size = self.0)]
    fn enter(&self) -> locker::Result<()> {
        Ok(())
    }
}

fn main() {}
