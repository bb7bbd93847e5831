//! What a locker is asked for besides locks: one small type per primitive, each over the same waiting loop.

mod barrier;
mod counter;
mod event;
mod latch;
pub(crate) mod lock_all;
mod rate_limiter;
mod watchdog;

pub use barrier::Barrier;
pub use counter::Counter;
pub use event::Event;
pub use latch::Latch;
pub use lock_all::{Guards, LockAllRequest};
pub(crate) use rate_limiter::Refusals;
pub use rate_limiter::{Admission, RateLimiter};
pub use watchdog::Watchdog;

use crate::{
    Error, ErrorKind, Result,
    config::between,
    key::Key,
    locker::{Asking, Locker, PERSISTENCE, Patience},
    primitives::{Reply, Request, counter::MAX_VALUE},
    request::unexpected,
};
use futures_util::{FutureExt, future::Either};
use std::{future::ready, time::Duration};

/// Refuses what not every store can count to exactly.
fn countable(what: &str, number: u64) -> Result<()> {
    const MOST: u64 = MAX_VALUE.unsigned_abs();
    if number <= MOST {
        return Ok(());
    }
    let message = format!("{what} {number} is out of range: give at most {MOST}");
    Err(Error::new(ErrorKind::Misused, message))
}

/// Sends an idempotent request until its answer is certain.
async fn tell(locker: &Locker, key: &Key, request: Request) -> Result<Reply> {
    let told = locker.insist(key, request, PERSISTENCE).await?;
    expect(told.reply, key)
}

/// Waits until what is asked for has come. Not an `async fn`, which would store its arguments in every waiter.
fn wait<'a, A: Asking>(
    locker: &'a Locker,
    key: &'a Key,
    what: &'a A,
    timeout: Duration,
) -> impl Future<Output = Result<Reply>> {
    let valid = if timeout == Duration::MAX { Ok(()) } else { between("timeout", timeout, Duration::ZERO) };
    match valid {
        Ok(()) => {
            let asked = locker.ask(key, what, Patience::up_to(timeout));
            Either::Left(asked.map(move |answer| expect(answer?.reply, key)))
        }
        Err(error) => Either::Right(ready(Err(error))),
    }
}

/// Turns the answers that no caller of this kind wants into errors.
fn expect(reply: Reply, key: &Key) -> Result<Reply> {
    let error = match reply {
        Reply::WrongKind | Reply::Busy { .. } | Reply::Queued { .. } => unexpected(&reply),
        Reply::Conflict => Error::new(ErrorKind::Conflict, "the present state does not allow it"),
        Reply::Cancelled => Error::new(ErrorKind::Conflict, "cancelled meanwhile"),
        reply => return Ok(reply),
    };
    Err(error.with_key(key.as_str()))
}
