use locker::{idempotent, once_per};

#[idempotent(args(id))]
//~ `#[idempotent(args(id))]`: `idempotent` needs `keep`: `keep = "24h", args(request_id)`
fn not_kept(id: u64) -> locker::Result<u64> {
    Ok(id)
}

#[idempotent(keep = "1h")]
//~ `#[idempotent(keep = "1h")]`: `idempotent` without `args` gives all calls one result: name what tells requests apart, or write `args()`
fn of_all(request: u64) -> locker::Result<u64> {
    Ok(request)
}

#[idempotent(keep = "1h", args(text))]
fn borrowed(text: &str) -> locker::Result<&str> {
    //~ `&str`: `idempotent` keeps the result: return an owned type, such as `String`
    Ok(text)
}

#[idempotent(keep = "1h", each(ids))]
//~ `each`: one call runs per `args`, and the others get its result: remove `each`
fn of_each(ids: Vec<u64>) -> locker::Result<u64> {
    Ok(1)
}

#[idempotent(keep = "1h", mode = "read")]
//~ `mode`: one call runs per `args`, and the others get its result: remove `mode`
fn with_a_mode() -> locker::Result<u64> {
    Ok(1)
}

#[idempotent(keep = "1h", release = "on_expiry")]
//~ `release`: the run ends with the body, and counts if it succeeds: remove `release`
fn never_released() -> locker::Result<u64> {
    Ok(1)
}

#[idempotent(keep = 0, after_crash = "refuse")]
//~ `0`: keep 0s forgets a crash at once: keep results, or run again after a crash
fn kept_for_no_time() -> locker::Result<u64> {
    Ok(1)
}

#[idempotent(keep = "11years")]
//~ `"11years"`: `keep` must be at most 10 years
fn kept_for_ever() -> locker::Result<u64> {
    Ok(1)
}

#[idempotent(keep = "1h", max_size = 524289)]
//~ `524289`: `max_size` takes a number up to 524288
fn of_any_size() -> locker::Result<u64> {
    Ok(1)
}

#[idempotent(keep = "1h", same = 7)]
//~ `=`: `same` takes its parts in parentheses: `same(0, account)`
fn with_one_value() -> locker::Result<u64> {
    Ok(1)
}

#[idempotent(keep = "1h", on_skip = nothing)]
//~ `on_skip`: `on_skip` is an option of `once_per`, not of `idempotent`
fn skipped() -> locker::Result<u64> {
    Ok(1)
}

#[once_per("1d", name = "a")]
#[idempotent(keep = "1h", name = "a")]
//~ `idempotent`: the `idempotent` above has the same key, so every call would wait for itself: give one of them another `name` or other `args`
fn twice() -> locker::Result<()> {
    Ok(())
}

fn main() {}
