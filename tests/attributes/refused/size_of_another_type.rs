use locker::limit_concurrency;

const SIZE: usize = 10;

#[limit_concurrency(size = SIZE)]
//~ `SIZE`: E0308
fn pay(account: u64) -> locker::Result<u64> {
    Ok(account)
}

struct Pool<const N: usize>;

impl<const N: usize> Pool<N> {
    #[limit_concurrency(size = N)]
    //~ `N`: E0308
    fn enter(&self) -> locker::Result<()> {
        Ok(())
    }
}

fn main() {}
