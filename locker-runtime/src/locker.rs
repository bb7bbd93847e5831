//! The locker: a store with defaults, and the ways to call the store.
//!
//! # Future size
//!
//! Each waiter costs as much memory as its future, so futures are kept small. An `async fn` stores its arguments twice,
//! hence functions that return `impl Future` instead; what few waiters need is boxed; what is returned by a call that
//! completes inline is never boxed.

mod ahead;
mod attempt;
mod deadlock;
mod descriptions;
mod fork_check;
mod holders;
mod recorded;
mod refusals;
#[cfg(test)]
mod tests;
mod traces;
mod wait_op;
mod waits;

use crate::settings::Settings;
pub(crate) use ahead::Ahead;
pub(crate) use deadlock::{Around, Picture, Wait};
use descriptions::Descriptions;
pub use descriptions::FunctionSource;
pub(crate) use descriptions::{check_note, default_note, elected_subject, function_subject, holder_subject};
use fork_check::made_before_a_fork;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either},
};
use holders::KnownTexts;
pub(crate) use holders::{LEADER, subjects_of};
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Cause, Error, ErrorKind, Result},
    id::Id,
    in_flight::{InFlight, InFlightCall},
    key::{Key, KeyFormat},
    panics,
    primitives::{Reply, Request},
    process::{OfProcess, Process},
    store::{Calling, Store},
};
pub(crate) use recorded::{Call, Counted, Kind, Loss, Metering, Record, Recorded, Subject};
pub(crate) use refusals::{Limited, Refusal, Refusals};
use std::{
    fmt,
    future::{Ready, ready},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};
pub(crate) use traces::{TraceContext, Traces};
pub(crate) use wait_op::{Acquired, WaitOp};
use waits::Waits;

/// A store with default settings, from which all handles are created. Cheap to clone; clones share the store.
///
/// ```
/// # use locker_runtime as locker;
/// # async fn example() -> locker::Result<()> {
/// let locker = locker::Locker::memory();
/// let guard = locker.lock("invoice 7").acquire().await?;
/// // no other caller holds "invoice 7" now
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
    descriptions: Descriptions,
    known_texts: KnownTexts,
    waits: Arc<Waits>,
    traces: Traces,
    recorded: Recorded,
    /// The process that made the locker. A forked child cannot use it.
    process: &'static Process,
}

/// What is the same for all calls of a locker, beside the store and the defaults.
pub(crate) struct Setup {
    pub(crate) prefix: String,
    pub(crate) key_format: KeyFormat,
    pub(crate) command_timeout: Duration,
    pub(crate) note: String,
    /// Whether deadlocks are looked for.
    pub(crate) deadlocks: bool,
    pub(crate) traces: Traces,
    pub(crate) metering: Metering,
}

impl Locker {
    pub(crate) fn new(store: Arc<dyn Store>, settings: Settings, setup: Setup) -> Self {
        let Setup { prefix, key_format, command_timeout, note, deadlocks, traces, metering } = setup;
        let recorded = Recorded::new(metering, store.name(), &prefix);
        let (in_flight, refusals) = (InFlight::default(), Refusals::default());
        let descriptions = Descriptions::new(note, store.id_prefix());
        let (waits, process) = (Waits::new(deadlocks), Process::this());
        Self(Arc::new(Inner {
            store,
            settings,
            prefix,
            key_format,
            command_timeout,
            in_flight,
            refusals,
            descriptions,
            known_texts: KnownTexts::default(),
            waits,
            traces,
            recorded,
            process,
        }))
    }

    /// Returns the prefix of every key.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.0.prefix
    }

    /// Returns how arguments are written into keys.
    #[must_use]
    pub fn key_format(&self) -> KeyFormat {
        self.0.key_format
    }

    /// Waits until the background work of this locker and its clones is done: releases of dropped guards, cancellations
    /// of abandoned attempts, and returned grants. Call it before the process ends: other callers would wait for
    /// unreleased holds until their leases are over.
    ///
    /// It waits until the store knows of a `min_hold`, not for its end. If the store cannot be reached, this takes up
    /// to a lease plus one minute. Put a timeout around it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn settled(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let done = async {
            self.0.in_flight.done().await;
            self.store().mailboxes().in_flight().done().await;
        };
        OfProcess::new(Box::pin(done)).await;
    }

    /// How long to wait for one reply of the store.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.0.command_timeout
    }

    /// The metrics and spans of this locker.
    pub(crate) fn recorded(&self) -> &Recorded {
        &self.0.recorded
    }

    /// The recent refusals of rate limiters.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.0.refusals
    }

    /// Returns an id for a new attempt. On a shared store it differs from the ids of all processes.
    pub(crate) fn new_id(&self) -> Id {
        let ids = self.0.descriptions.ids;
        if self.store().waiter_ttl().is_some() { Id::random_of(ids) } else { Id::local_of(ids) }
    }

    /// Whether the store is in this process.
    pub(crate) fn is_embedded(&self) -> bool {
        self.store().waiter_ttl().is_none()
    }

    /// The defaults of the calls made on this locker.
    pub(crate) fn settings(&self) -> Settings {
        self.0.settings
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// Sends `request` in the background, and retries until the reply is certain or `give_up` has passed. It also
    /// retries errors that are not temporary, such as a wrong password, if the request was not sent. An embedded store
    /// replies inline.
    pub(crate) fn call_in_background(
        &self,
        key: &Key,
        request: Request,
        give_up: Duration,
        then: impl FnOnce(Result<Settled>) + Send + 'static,
    ) {
        // A guard may be dropped by a panic: a second panic, of the store, would end the process.
        let inline = panics::contain(|| self.call_inline(key, &request, None));
        if let Some(answer) = inline.unwrap_or_else(|| Some(Err(panicked()))) {
            return then(answer.map(Settled::inline));
        }
        let (locker, key, call) = (self.clone(), key.clone(), self.0.in_flight.begin());
        background::spawn(async move {
            let (sent, is_retried) =
                (Timestamp::now(), |error: &Error| error.is_temporary() || error.is_unsent());
            then(locker.retry(&key, request, sent, give_up, is_retried).await);
            drop(call);
        });
    }

    /// Makes [`settled`](Self::settled) wait until the returned value is dropped.
    pub(crate) fn begin_background(&self) -> InFlightCall {
        self.0.in_flight.begin()
    }

    /// Sends an idempotent request at `now`, and retries until the reply is certain or `window` has passed.
    pub(crate) fn retry_until_certain<'a>(
        &'a self,
        key: &'a Key,
        request: Request,
        now: Timestamp,
        window: Duration,
    ) -> MaybeReady<'a, Settled> {
        self.retry_while(key, request, now, window, Error::is_temporary)
    }

    /// Does what [`retry_until_certain`](Self::retry_until_certain) does, and retries also what was not sent.
    pub(crate) fn retry_until_answered<'a>(
        &'a self,
        key: &'a Key,
        request: Request,
        now: Timestamp,
        window: Duration,
    ) -> MaybeReady<'a, Settled> {
        self.retry_while(key, request, now, window, |error| error.is_temporary() || error.is_unsent())
    }

    fn retry_while<'a>(
        &'a self,
        key: &'a Key,
        request: Request,
        now: Timestamp,
        window: Duration,
        is_retried: impl Fn(&Error) -> bool + Send + 'a,
    ) -> MaybeReady<'a, Settled> {
        match self.call_inline(key, &request, Some(now)) {
            Some(reply) => Either::Left(ready(reply.map(Settled::inline))),
            None => Either::Right(Box::pin(self.retry(key, request, now, window, is_retried))),
        }
    }

    async fn retry(
        &self,
        key: &Key,
        mut request: Request,
        mut sent: Timestamp,
        window: Duration,
        is_retried: impl Fn(&Error) -> bool,
    ) -> Result<Settled> {
        let (mut backoff, mut retried, mut cause) = (Backoff::default(), false, Cause::default());
        let until = sent + window;
        loop {
            let reply = self.call_until(key, request.clone(), sent, until).await;
            let error = match reply {
                Ok(reply) => return Ok(Settled { reply, retried, sent: Some(sent) }),
                Err(error) => cause.explain(error),
            };
            let delay = backoff.next_delay();
            if !is_retried(&error) || Timestamp::now() + delay >= until {
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

    /// Makes one call at `now`, and waits for its reply until `until`.
    fn call_until<'a>(
        &'a self,
        key: &'a Key,
        request: Request,
        now: Timestamp,
        until: Timestamp,
    ) -> MaybeReady<'a, Reply> {
        match self.call_inline(key, &request, Some(now)) {
            Some(reply) => Either::Left(ready(reply)),
            None => Either::Right(Box::pin(async move {
                let reply = in_time(OfProcess::new(self.store().call(key, &request)), now, until).await;
                self.recorded().replied(&request, now, &reply);
                reply.map_err(|error| error.with_key(key.as_str()))
            })),
        }
    }

    /// Makes one call, and returns an error if the store panics: for a task that must not end.
    pub(crate) async fn call_contained(&self, key: &Key, request: &Request) -> Result<Reply> {
        let sent = Timestamp::now();
        let call = AssertUnwindSafe(async { self.store().call(key, request).await });
        let reply = call.catch_unwind().await.unwrap_or_else(|_| Err(panicked()));
        if !self.is_embedded() {
            self.recorded().replied(request, sent, &reply);
        }
        reply
    }

    /// Makes one call, and returns its reply if the store is in this process. Returns `None`, without a call, if the
    /// store is across a network. `now` is the time, if the caller has just read the clock.
    pub(crate) fn call_inline(
        &self,
        key: &Key,
        request: &Request,
        now: Option<Timestamp>,
    ) -> Option<Result<Reply>> {
        if let Err(error) = self.ready() {
            return Some(Err(error.with_key(key.as_str())));
        }
        if self.store().waiter_ttl().is_some() {
            return None;
        }
        let call = match now {
            Some(now) => self.store().call_at(key, request, now),
            None => self.store().call(key, request),
        };
        match call {
            Calling::Ready(reply) => Some(reply.into_inner().map_err(|error| {
                self.recorded().store_failed(&error);
                error.with_key(key.as_str())
            })),
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

/// A reply that is ready or still to come, in as few bytes as possible.
pub(crate) type MaybeReady<'a, T> = Either<Ready<Result<T>>, BoxFuture<'a, Result<T>>>;

/// The certain reply to a request that may have been sent more than once.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) reply: Reply,
    /// Whether an earlier copy may have been carried out.
    pub(crate) retried: bool,
    /// When the copy was sent that the reply answers. `None` if the reply came inline.
    pub(crate) sent: Option<Timestamp>,
}

impl Settled {
    fn inline(reply: Reply) -> Self {
        Self { reply, retried: false, sent: None }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Unavailable, "the store panicked").unknown()
}

async fn in_time(call: OfProcess<Calling<'_>>, now: Timestamp, until: Timestamp) -> Result<Reply> {
    tokio::select! {
        biased;
        reply = call => reply.unwrap_or_else(|| Err(made_before_a_fork())),
        () = background::sleep_from(now, until) =>
            Err(Error::new(ErrorKind::Unavailable, "the store did not reply in time").unknown()),
    }
}
