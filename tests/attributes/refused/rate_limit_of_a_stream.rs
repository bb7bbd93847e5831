use locker::rate_limit;

#[rate_limit(size = 5, interval = 1)]
fn call() -> impl Stream {
//~ `Stream`: the call would be admitted before the work of the returned `Stream` starts: make it `async fn` and collect the items in its body
    0
}

trait Stream {}

impl Stream for u64 {}

fn main() {}
