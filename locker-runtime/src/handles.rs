//! The handles: one small type for each thing that a [`Locker`] offers, all over the same waiting loop.
//!
//! Each file has the method of [`Locker`] that creates its handle.

mod admin;
mod barrier;
mod counter;
mod election;
mod event;
pub(crate) mod keyed;
mod latch;
pub(crate) mod lock;
pub(crate) mod lock_all;
pub(crate) mod once;
mod rate_limiter;
mod watchdog;

pub use admin::{Admin, Explanation, Filter, FunctionSource, Listed, Page};
pub use barrier::Barrier;
pub use counter::Counter;
pub use election::{Election, Leader, Observer};
pub use event::Event;
pub use keyed::{Grant, KeyedHold};
pub use latch::Latch;
pub use lock::LockRequest;
pub(crate) use lock::Origin;
pub use lock_all::{Guards, LockAllRequest};
#[cfg(feature = "idempotent")]
pub use once::OnceKeep;
pub use once::{Once, OncePer};
pub use rate_limiter::{Admission, RateLimiter};
pub use watchdog::Watchdog;

use crate::{
    locker::{Locker, Settled, WaitOp},
    settings::Patience,
};
use futures_util::{FutureExt, future::Either};
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    primitives::{Reply, Request},
    ranges::check_range,
};
use std::{future::ready, ops::RangeInclusive, time::Duration};

/// How long a request is retried that no caller queues for: as long as one command may take, within these limits. The
/// upper one is well below the time for which stores know what they have carried out (`TOMBSTONE`).
const RETRY_WINDOW: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(30);

/// Sends an idempotent request until its reply is certain. Not an `async fn`: see "Future size" in `locker.rs`.
fn request_with_retry<'a>(
    locker: &'a Locker,
    key: &'a Key,
    request: Request,
) -> impl Future<Output = Result<Settled>> + Send + 'a {
    let window = locker.command_timeout().clamp(*RETRY_WINDOW.start(), *RETRY_WINDOW.end());
    locker.retry_until_certain(key, request, Timestamp::now(), window).map(|settled| match settled? {
        Settled { reply: Reply::WrongKind, .. } => Err(Reply::WrongKind.into_error().with_key(key.as_str())),
        settled => Ok(settled),
    })
}

/// Sends an idempotent change until its reply is certain.
fn change<'a>(
    locker: &'a Locker,
    key: &'a Key,
    request: Request,
) -> impl Future<Output = Result<Reply>> + Send + 'a {
    request_with_retry(locker, key, request).map(|settled| expect(settled?.reply, key))
}

/// Waits until the operation succeeds, and ends its call.
fn wait<'a, A: WaitOp>(
    locker: &'a Locker,
    key: &'a Key,
    what: &'a A,
    timeout: Duration,
) -> impl Future<Output = Result<Reply>> {
    let valid =
        if timeout == Duration::MAX { Ok(()) } else { check_range("timeout", timeout, Duration::ZERO) };
    match what.call().check(valid) {
        Ok(()) => {
            let acquired = locker.ask(key, what, Patience::up_to(timeout));
            Either::Left(acquired.map(move |acquired| {
                let reply = acquired.and_then(|acquired| expect(acquired.reply, key));
                what.call().end(reply.as_ref().map(|_| None).map_err(Error::kind));
                reply
            }))
        }
        Err(error) => Either::Right(ready(Err(error))),
    }
}

/// Turns the replies that are no success into errors.
fn expect(reply: Reply, key: &Key) -> Result<Reply> {
    let error = match reply {
        Reply::Conflict => Error::new(ErrorKind::Conflict, "over already: it happens only once"),
        Reply::WrongKind | Reply::Busy { .. } | Reply::Queued { .. } => reply.into_error(),
        Reply::Cancelled => Error::new(ErrorKind::Conflict, "cancelled during the call"),
        reply => return Ok(reply),
    };
    Err(error.with_key(key.as_str()))
}
