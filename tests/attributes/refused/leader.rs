use locker::leader;
use std::sync::Arc;

#[leader(name = "a")]
//~ `#[leader(name = "a")]`: `leader` needs an async function: a plain one cannot be stopped when the lease is lost
fn plain() -> locker::Result<()> {
    Ok(())
}

#[leader]
//~ `#[leader]`: `leader` needs `name`: `name = "reaper", lease = "15s"`
async fn nameless() -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a", timeout = "1s")]
//~ `timeout`: `leader` waits until it is elected: remove `timeout`
async fn impatient() -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a", each(ids))]
//~ `each`: one function leads at a time per `name`: remove `each`
async fn of_each(ids: Vec<u64>) -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a", args(id))]
//~ `args`: one function leads at a time per `name`: remove `args`
async fn of_arguments(id: u64) -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a", mode = "read")]
//~ `mode`: one function leads at a time per `name`: remove `mode`
async fn of_readers() -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a", release = "on_expiry")]
//~ `release`: the term ends with the body, and the body with the term: remove `release`
async fn never_released() -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a", on_lost = "continue")]
//~ `on_lost`: the term ends with the body, and the body with the term: remove `on_lost`
async fn goes_on() -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a", lease = "10s", stop_before = "6s")]
//~ `"6s"`: stop_before 6s is more than half of the lease 10s
async fn stops_too_early() -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a", size = 3)]
//~ `size`: `size` is an option of `rate_limit` and `limit_concurrency`, not of `leader`
async fn several() -> locker::Result<()> {
    Ok(())
}

#[leader(name = "a")]
async fn without_a_result() {}
//~ `without_a_result`: `without_a_result` must return `Result<_, E>` with `E: From<locker::Error>`, or set `on_error`: acquiring can fail

#[leader(name = "a")]
async fn of_a_mutable_reference(batch: &mut Vec<u64>) -> locker::Result<()> {
    //~ `&mut Vec<u64>`: `leader` runs the body again in each term, and cannot give it a `&mut` twice: take an `Arc<Mutex<_>>`
    batch.clear();
    Ok(())
}

#[leader(name = "a", note = "b")]
//~ `note`: `leader` has no option `note`: an attribute has the note of its locker, `LockerBuilder::note`
async fn noted() -> locker::Result<()> {
    Ok(())
}

struct Reaper;

impl Reaper {
    #[leader(name = "a")]
    async fn by_mutable_reference(&mut self) -> locker::Result<()> {
        //~ `&mut self`: `leader` runs the body again in each term, which takes `self` only by `&self`
        Ok(())
    }

    #[leader(name = "a")]
    async fn shared(self: Arc<Self>) -> locker::Result<()> {
        //~ `self: Arc<Self>`: `leader` runs the body again in each term, which takes `self` only by `&self`
        Ok(())
    }
}

fn main() {}
