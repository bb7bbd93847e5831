use locker::idempotent;

#[idempotent(keep = "1h")]
fn counted() -> u64 {
    //~ `u64`: `u64` cannot be kept for other calls: return `Result<T, E>`, where `T` is `Serialize` and `DeserializeOwned`
    1
}

fn main() {}
