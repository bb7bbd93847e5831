use locker::rate_limit;

#[rate_limit(size = 5, interval = 1)]
fn call() -> impl Stream {
    0
}

trait Stream {}

impl Stream for u64 {}

fn main() {}
