//! The locker: a store with defaults, and how it is asked.

mod attempt;
mod refusals;
#[cfg(test)]
mod tests;
mod wait_op;

use crate::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Cause, Error, ErrorKind, Result},
    id::Id,
    in_flight::InFlight,
    key::{Key, KeyFormat},
    panics,
    primitives::{Reply, Request},
    settings::Settings,
    store::{Calling, Store},
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either},
};
pub(crate) use refusals::{Limited, Refusal, Refusals};
use std::{
    fmt,
    future::{Ready, ready},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};
pub(crate) use wait_op::{Acquired, WaitOp};

/// A store together with defaults: everything else starts here. Cheap to clone; clones share the store.
///
/// ```
/// # use locker_runtime as locker;
/// # async fn example() -> locker::Result<()> {
/// let locker = locker::Locker::memory();
/// let guard = locker.lock("invoice 7").acquire().await?;
/// // nobody else holds "invoice 7" now
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locker(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    settings: Settings,
    prefix: String,
    key_format: KeyFormat,
    command_timeout: Duration,
    in_flight: InFlight,
    refusals: Refusals,
}

impl Locker {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        settings: Settings,
        prefix: String,
        key_format: KeyFormat,
        command_timeout: Duration,
    ) -> Self {
        let (in_flight, refusals) = (InFlight::default(), Refusals::default());
        Self(Arc::new(Inner { store, settings, prefix, key_format, command_timeout, in_flight, refusals }))
    }

    /// What stands before every key.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.0.prefix
    }

    /// How arguments are written into keys.
    #[must_use]
    pub fn key_format(&self) -> KeyFormat {
        self.0.key_format
    }

    /// Waits until everything is done that this locker and its clones send from the background: releases of dropped
    /// guards, the taking back of attempts that were given up, and the handing back of what came for nobody. For a
    /// process that is about to end: what it leaves undone others wait for until a lease is over.
    ///
    /// With a store that cannot be reached this takes as long as a lease and a minute; put a time-out around it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn settled(&self) {
        self.0.in_flight.done().await;
        self.store().mailboxes().in_flight().done().await;
    }

    /// How long one answer of the store is waited for.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.0.command_timeout
    }

    /// What limiters have refused just now.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.0.refusals
    }

    /// For a new attempt. Where others take part, it must differ from all of theirs.
    pub(crate) fn new_id(&self) -> Id {
        if self.store().waiter_ttl().is_some() { Id::random() } else { Id::local() }
    }

    /// Whether the store is in this process.
    pub(crate) fn is_embedded(&self) -> bool {
        self.store().waiter_ttl().is_none()
    }

    /// The defaults of the calls made on it.
    pub(crate) fn settings(&self) -> Settings {
        self.0.settings
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// Sends `request` without anybody waiting for it, again and again until it is certain or `give_up` has passed; also
    /// where nobody could be reached for a reason that usually does not pass, such as a password. Answered inline where
    /// the store can.
    pub(crate) fn call_in_background(
        &self,
        key: &Key,
        request: Request,
        give_up: Duration,
        then: impl FnOnce(Result<Settled>) + Send + 'static,
    ) {
        // This may be the end of a guard, and that of a panic: a store that panics, too, must not end the process.
        let at_once = panics::contain(|| self.call_inline(key, &request));
        if let Some(answer) = at_once.unwrap_or_else(|| Some(Err(panicked()))) {
            return then(answer.map(Settled::inline));
        }
        let (locker, key, errand) = (self.clone(), key.clone(), self.0.in_flight.begin());
        background::spawn(async move {
            let (sent, passes) =
                (Timestamp::now(), |error: &Error| error.is_temporary() || error.is_unsent());
            then(locker.repeat(&key, request, sent, give_up, passes).await);
            drop(errand);
        });
    }

    /// Repeats an idempotent request until it is certain or `patience` is over.
    pub(crate) fn retry_until_certain<'a>(
        &'a self,
        key: &'a Key,
        request: Request,
        patience: Duration,
    ) -> MaybeReady<'a, Settled> {
        match self.call_inline(key, &request) {
            Some(answer) => Either::Left(ready(answer.map(Settled::inline))),
            None => Either::Right(Box::pin(self.repeat(
                key,
                request,
                Timestamp::now(),
                patience,
                Error::is_temporary,
            ))),
        }
    }

    async fn repeat(
        &self,
        key: &Key,
        mut request: Request,
        mut sent: Timestamp,
        patience: Duration,
        passes: impl Fn(&Error) -> bool,
    ) -> Result<Settled> {
        let (mut backoff, mut retried, mut cause) = (Backoff::default(), false, Cause::default());
        let until = sent + patience;
        loop {
            let answer = self.call_until(key, request.clone(), sent, until).await;
            let error = match answer {
                Ok(reply) => return Ok(Settled { reply, retried, sent: Some(sent) }),
                Err(error) => cause.explain(error),
            };
            let delay = backoff.next_delay();
            if !passes(&error) || Timestamp::now() + delay >= until {
                return Err(if retried { error.unknown() } else { error });
            }
            if !error.is_certain() {
                retried = true;
                request.set_retried();
            }
            background::sleep(delay).await;
            sent = Timestamp::now();
        }
    }

    /// One call, made `now` and not waited for longer than `until`.
    fn call_until<'a>(
        &'a self,
        key: &'a Key,
        request: Request,
        now: Timestamp,
        until: Timestamp,
    ) -> MaybeReady<'a, Reply> {
        match self.call_inline(key, &request) {
            Some(answer) => Either::Left(ready(answer)),
            None => Either::Right(Box::pin(async move {
                let answer = in_time(self.store().call(key, &request), now, until).await;
                answer.map_err(|error| error.with_key(key.as_str()))
            })),
        }
    }

    /// One call, for those who must go on: that the store has panicked is an error like others.
    pub(crate) async fn call_contained(&self, key: &Key, request: &Request) -> Result<Reply> {
        let call = AssertUnwindSafe(async { self.store().call(key, request).await });
        call.catch_unwind().await.unwrap_or_else(|_| Err(panicked()))
    }

    /// The answer of a store that answers at once. Of one that does not, nothing has been asked yet. A store with a
    /// `Store::waiter_ttl` is across a network: its call would be made only to be dropped.
    pub(crate) fn call_inline(&self, key: &Key, request: &Request) -> Option<Result<Reply>> {
        if let Err(error) = background::ready() {
            return Some(Err(error.with_key(key.as_str())));
        }
        if self.store().waiter_ttl().is_some() {
            return None;
        }
        match self.store().call(key, request) {
            Calling::Ready(answer) => Some(answer.into_inner().map_err(|error| error.with_key(key.as_str()))),
            Calling::Pending(_) => None,
        }
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { store, settings, prefix, key_format, .. } = &*self.0;
        let mut out = f.debug_struct("Locker");
        out.field("store", store).field("settings", settings).field("prefix", prefix);
        out.field("key_format", key_format).finish()
    }
}

/// An answer that is here, or one on its way, which takes as little room as can be in whoever waits for it.
pub(crate) type MaybeReady<'a, T> = Either<Ready<Result<T>>, BoxFuture<'a, Result<T>>>;

/// The certain answer to a request that may have been sent more than once.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) reply: Reply,
    /// An earlier copy may have been carried out.
    pub(crate) retried: bool,
    /// When that one was sent which was answered; `None`: it was answered at once.
    pub(crate) sent: Option<Timestamp>,
}

impl Settled {
    fn inline(reply: Reply) -> Self {
        Self { reply, retried: false, sent: None }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Unavailable, "the store has panicked").unknown()
}

async fn in_time(call: Calling<'_>, now: Timestamp, until: Timestamp) -> Result<Reply> {
    tokio::select! {
        biased;
        answer = call => answer,
        () = background::sleep_from(now, until) =>
            Err(Error::new(ErrorKind::Unavailable, "the store did not answer in time").unknown()),
    }
}
