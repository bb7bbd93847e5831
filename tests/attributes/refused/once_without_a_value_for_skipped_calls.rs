use locker::once_per;

#[once_per("1d")]
fn counted() -> locker::Result<u64> {
    //~ `locker::Result<u64>`: `Result<u64, locker::Error>` cannot say that the call was skipped: return `Result<(), E>` or `Result<Option<T>, E>`, or add `on_skip = path`
    Ok(1)
}

fn main() {}
