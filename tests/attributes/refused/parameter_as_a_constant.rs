use locker::{limit_concurrency, lock_on_argument};
use std::time::Duration;

#[lock_on_argument(expr = lease)]
//~ `lease`: `expr` takes a constant, but `lease` is a parameter of `pay`: use a literal or a `const`
fn pay(lease: Duration) -> locker::Result<()> {
    drop(lease);
    Ok(())
}

#[lock_on_argument(timeout = Duration::from_secs(1 + seconds))]
//~ `seconds`: `timeout` takes a constant, but `seconds` is a parameter of `pay_2`: use a literal or a `const`
async fn pay_2(seconds: u64) -> locker::Result<()> {
    drop(seconds);
    Ok(())
}

#[lock_on_argument(timeout = match seconds { other => Duration::from_secs(other) })]
//~ `seconds`: `timeout` takes a constant, but `seconds` is a parameter of `pay_3`: use a literal or a `const`
async fn pay_3(seconds: u64) -> locker::Result<()> {
    drop(seconds);
    Ok(())
}

struct Pool(u64);

impl Pool {
    #[limit_concurrency(size = self.0)]
    //~ `self`: `size` takes a constant, but `self` is a parameter of `enter`: use a literal or a `const`
    fn enter(&self) -> locker::Result<()> {
        Ok(())
    }
}

fn main() {}
