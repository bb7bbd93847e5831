use locker::rate_limit;

#[rate_limit(size = 5, interval = 1)]
fn call() -> impl Future<Output = ()> {
//~ `Future<Output = ()>`: the call would be admitted before the work of the returned `Future` starts: make it `async fn`
    async {}
}

fn main() {}
