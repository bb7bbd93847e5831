use locker::idempotent;

fn none(_: locker::Error) -> u64 {
    0
}

#[idempotent(keep = "1h", on_error = none)]
fn counted() -> u64 {
    //~ `u64`: `u64` cannot be kept for other calls: return `Result<T, E>`, where `T` is `Serialize` and `DeserializeOwned`
    1
}

fn main() {}
