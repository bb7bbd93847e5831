use locker::rate_limit;

#[rate_limit(size = 5, interval = 1)]
fn call() -> impl Future<Output = ()> {
    async {}
}

fn main() {}
