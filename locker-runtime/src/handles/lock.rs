//! Requests for locks, permits and read/write locks.

use crate::{
    lease::{Caller, Guard, Hold, Release, any_body, check_bodies, check_holds, holds_of_bodies},
    locker::{Acquired, Ahead, Call, Counted, Locker, Subject, Wait as ListedWait, WaitOp},
    settings::{RETRY_DELAY, Settings, covering, hold_setters, margin_setters, waiting_setters},
};
use humantime::format_duration;
use locker_core::{
    backoff::Backoff,
    blocking::block_on,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::{Function, Key, KeyPart},
    primitives::{HoldKind, Reply, Request, Value, Wait, record::Ask, rwlock::Mode},
    ranges::misused,
};
use std::{
    fmt,
    future::poll_fn,
    panic::Location,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// A request for a lock, for permits of a semaphore, or for a read/write lock. Created by [`Locker::lock`] and the
/// methods beside it.
///
/// Settings that are not set here are those of the [`Locker`].
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// use std::time::Duration;
/// let locker = Locker::memory();
/// let guard = locker.semaphore("exports", 10).permits(2).lease(Duration::from_secs(60)).acquire().await?;
/// assert!(locker.semaphore("exports", 10).permits(9).try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LockRequest {
    locker: Locker,
    kind: HoldKind,
    key: Key,
    settings: Settings,
    /// Whether `permits` was set on semaphores only.
    has_permits: bool,
    release: Release,
    /// Whether the store grants it alone, and not together with those of other waiters of this process.
    alone: bool,
    origin: Origin,
    /// Holds that do not end before the call does, beside those of the bodies around it.
    around: Box<[Arc<Hold>]>,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// Another language, or the command line.
    Elsewhere,
    /// A call by hand.
    Call(&'static Location<'static>),
    /// An attribute.
    Function(&'static Function),
}

impl Origin {
    /// Returns the place of the caller of a function with `#[track_caller]`.
    #[track_caller]
    pub(crate) fn caller() -> Self {
        Self::Call(Location::caller())
    }

    fn function(self) -> Option<&'static str> {
        if let Self::Function(function) = self { Some(function.path()) } else { None }
    }

    fn place(self) -> Option<String> {
        match self {
            Self::Elsewhere => None,
            Self::Call(place) => Some(format!("{}:{}", place.file(), place.line())),
            Self::Function(function) => function.place(),
        }
    }

    /// Adds the function, and the place to what stood in the way of the call.
    pub(super) fn of(self, error: Error) -> Error {
        let error = error.of_function(self.function());
        match error.blocked().and_then(|_| self.place()) {
            Some(place) => error.asked_at(place),
            None => error,
        }
    }
}

impl Locker {
    /// Returns a request for the exclusive lock called `name`.
    #[track_caller]
    pub fn lock(&self, name: &str) -> LockRequest {
        self.by_hand(HoldKind::Lock, Key::named(self.prefix(), "lock", name))
    }

    /// Returns a request for the lock that `#[lock_on_argument(name = "..", args(..))]` takes for these arguments.
    ///
    /// ```
    /// # async fn example(locker: locker_runtime::Locker) -> locker_runtime::Result<()> {
    /// let (card, amount) = (6222, 100);
    /// let guard = locker.lock_on("bank.withdraw", &[&card, &amount]).acquire().await?;
    /// # guard.release().await }
    /// ```
    #[track_caller]
    pub fn lock_on(&self, name: &str, arguments: &[&dyn KeyPart]) -> LockRequest {
        self.by_hand(HoldKind::Lock, Key::on(self.prefix(), self.key_format(), name, arguments))
    }

    /// Returns a request for a permit of the semaphore called `name`. The most recent `size` applies to all callers: a
    /// smaller one evicts no holder, and 0 blocks new holders until it is raised. The greatest is 2^53 - 1.
    ///
    /// [`permits`](LockRequest::permits) takes several permits at once.
    #[track_caller]
    pub fn semaphore(&self, name: &str, size: u64) -> LockRequest {
        self.by_hand(HoldKind::Semaphore { size, permits: 1 }, Key::named(self.prefix(), "semaphore", name))
    }

    /// Returns a request for the read/write lock called `name`, to hold it together with other readers. A reader does
    /// not overtake a waiting writer. It is another lock than [`lock`](Self::lock) of the same name.
    #[track_caller]
    pub fn read_lock(&self, name: &str) -> LockRequest {
        self.by_hand(HoldKind::ReadWrite(Mode::Read), Key::named(self.prefix(), "rwlock", name))
    }

    /// Returns a request for the read/write lock called `name`, to hold it alone.
    #[track_caller]
    pub fn write_lock(&self, name: &str) -> LockRequest {
        self.by_hand(HoldKind::ReadWrite(Mode::Write), Key::named(self.prefix(), "rwlock", name))
    }

    #[track_caller]
    fn by_hand(&self, kind: HoldKind, key: Key) -> LockRequest {
        self.request(kind, key).origin(Origin::caller())
    }

    pub(crate) fn request(&self, kind: HoldKind, key: Key) -> LockRequest {
        LockRequest::new(self.clone(), kind, key, self.settings())
    }
}

impl LockRequest {
    pub(crate) fn new(locker: Locker, kind: HoldKind, key: Key, settings: Settings) -> Self {
        let (release, origin, around) = (Release::OnDrop, Origin::Elsewhere, Box::default());
        Self { locker, kind, key, settings, has_permits: true, release, alone: false, origin, around }
    }

    waiting_setters!();

    margin_setters!();

    hold_setters!();

    /// Sets how many permits of a semaphore to take, all or nothing. Default 1, at most the semaphore's size. A request
    /// for a lock with permits fails with `Misused`.
    pub fn permits(mut self, permits: u64) -> Self {
        match &mut self.kind {
            HoldKind::Semaphore { permits: taken, .. } => *taken = permits,
            _ => self.has_permits = false,
        }
        self
    }

    /// Says that the caller releases `guard` after this call only. If the call is then part of a circle of callers that
    /// wait for each other, one of them fails with [`Deadlock`](locker_core::error::ErrorKind::Deadlock), as functions
    /// with attributes do, whose holds are known. Default: no guard. Beside one whose lease is not renewed it has no
    /// effect.
    pub fn holding(self, guard: &Guard) -> Self {
        self.holding_all(guard.held())
    }

    pub(crate) fn holding_all<'a>(mut self, holds: impl IntoIterator<Item = &'a Arc<Hold>>) -> Self {
        let mut around = self.around.into_vec();
        around.extend(holds.into_iter().cloned());
        self.around = around.into();
        self
    }

    /// Makes the hold last until the end of its lease, however the guard ends.
    #[doc(hidden)]
    pub fn release_on_expiry(mut self) -> Self {
        self.release = Release::OnExpiry;
        self
    }

    /// Makes the store know each grant: on Redis, waiters of one process are granted a lock as a run otherwise, which
    /// has one fence there.
    pub(crate) fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Makes the timeout count from `start`, when the first of several requests began.
    pub(crate) fn started(mut self, start: Timestamp) -> Self {
        if self.settings.timeout != Duration::MAX {
            self.settings.timeout = self.settings.timeout.saturating_sub(Timestamp::now().since(start));
        }
        self
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    /// Sets where the request comes from, which errors and events name.
    pub(crate) fn origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Makes errors name no place of the program.
    #[doc(hidden)]
    pub fn without_place(self) -> Self {
        self.origin(Origin::Elsewhere)
    }

    /// Acquires, waiting if necessary.
    ///
    /// # Errors
    /// `TimedOut` or `RetriesExhausted` if it was not granted; `Deadlock` if it would wait for itself, through callers
    /// that hold something and wait for this one; `Unavailable` if the store cannot be reached, which a
    /// waiter learns up to a `command_timeout` after its timeout; `Misused` if a setting is wrong, if the size of a
    /// semaphore is lowered below the permits asked for, or if the function around the call holds it through an
    /// attribute and would wait for itself; `Conflict` if the name is deleted during the wait, or the key belongs to
    /// another kind of primitive.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue and releases a grant that was under way.
    pub fn acquire(self) -> impl Future<Output = Result<Guard>> + Send {
        self.call(None, Self::granted, Self::hold)
    }

    /// Makes the call, whose reply `judge` turns into its result. `ask` is what a record is asked.
    #[expect(clippy::manual_async_fn, reason = "future size, see locker.rs")]
    pub(super) fn call<'a, A: Send, T>(
        self,
        ask: Option<&'a Ask>,
        judge: impl FnOnce(&Self, Result<Acquired>, &Call<'_>) -> Result<A> + Send + 'a,
        then: impl FnOnce(Self, Id, A) -> T + Send + 'a,
    ) -> impl Future<Output = Result<T>> + Send + 'a {
        async move {
            self.locker.introduce(self.settings.lease);
            let id = self.locker.new_id();
            let op = LockOp { id, of: &self, ask, call: Call::start(&self) };
            let checked =
                match self.check().and_then(|()| self.check_around(self.around.iter().map(Arc::as_ref))) {
                    Ok(()) if any_body() && self.may_wait() => {
                        poll_fn(|context| Poll::Ready(self.check_bodies(context))).await
                    }
                    checked => checked,
                };
            let acquired = match checked {
                Ok(()) => self.locker.ask(&self.key, &op, self.settings.patience()).await,
                Err(error) => Err(error),
            };
            let answered = judge(&self, acquired, &op.call);
            drop(op);
            answered.map(|answered| then(self, id, answered))
        }
    }

    #[cfg(feature = "idempotent")]
    pub(super) fn into_parts(self) -> (Locker, Key, Duration) {
        (self.locker, self.key, self.settings.lease)
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Refuses a call that would wait for `holds`, which are around it.
    pub(crate) fn check_around<'a>(&self, holds: impl Iterator<Item = &'a Hold>) -> Result<()> {
        if self.may_wait() { check_holds(holds, &self.locker, self.kind, &self.key) } else { Ok(()) }
    }

    /// Checks all settings, as the call itself does.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.has_permits {
            return Err(Error::new(ErrorKind::Misused, "permits belong to semaphores: a lock has none"));
        }
        self.kind.check()?;
        self.settings.check()?;
        self.check_min_hold()
    }

    fn check_min_hold(&self) -> Result<()> {
        let Settings { min_hold, lease, .. } = self.settings;
        if min_hold.is_zero() || covering(min_hold, lease) <= self.locker.store().longest_lease() {
            return Ok(());
        }
        let longest = format_duration(self.locker.store().longest_lease());
        misused(format!(
            "min_hold {} and a quarter of the lease are longer than strict mode allows, which is {longest} here",
            format_duration(min_hold)
        ))
    }

    fn may_wait(&self) -> bool {
        !self.settings.timeout.is_zero() && self.settings.max_retry != Some(1)
    }

    fn check_bodies(&self, context: &Context<'_>) -> Result<()> {
        check_bodies(&Caller::of(context), &self.locker, self.kind, &self.key)
    }

    /// Tries once, without waiting. Returns `None` if it is not granted at once: others hold it, or wait for it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `TimedOut` or `RetriesExhausted`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(mut self) -> Result<Option<Guard>> {
        self.settings.timeout = Duration::ZERO;
        match self.reply_inline() {
            Some((_, Acquired { reply: Reply::Busy { .. }, .. })) => {
                Call::start(&self).end(Err(ErrorKind::TimedOut));
                Ok(None)
            }
            Some((id, acquired)) => {
                let granted = self.granted(Ok(acquired), &Call::start(&self))?;
                Ok(Some(self.hold(id, granted)))
            }
            // Boxed: nothing on the embedded store comes here.
            None => match Box::pin(self.acquire()).await {
                Ok(guard) => Ok(Some(guard)),
                Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Returns the reply of the embedded store to a call that does not wait. It is asked without a mailbox, because the
    /// reply cannot be lost.
    fn reply_inline(&self) -> Option<(Id, Acquired)> {
        if !self.locker.is_embedded() || self.check().is_err() {
            return None;
        }
        self.locker.introduce(self.settings.lease);
        let (id, sent) = (self.locker.new_id(), Timestamp::now());
        let ahead = Ahead::of(self.locker.store());
        let request = self.kind.acquire(id, self.settings.lease, None);
        let reply = self.locker.call_inline(&self.key, &request, Some(sent))?.ok()?;
        Some((id, Acquired { reply, sent, ahead, since: sent, doubtful: false, waited: None }))
    }

    /// [`acquire`](Self::acquire) for callers that are not async: blocks this thread.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_blocking(self) -> Result<Guard> {
        block_on(self.acquire())
    }

    /// [`try_acquire`](Self::try_acquire) for callers that are not async.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_blocking(self) -> Result<Option<Guard>> {
        block_on(self.try_acquire())
    }

    /// Ends the call. Returns the fence beside what was acquired.
    fn granted(&self, acquired: Result<Acquired>, call: &Call<'_>) -> Result<(u64, Acquired)> {
        let granted = acquired.and_then(|acquired| match acquired.reply {
            Reply::Granted { fence } => Ok((fence, acquired)),
            ref reply => Err(self.kind.refusal(reply).with_key(self.key.as_str())),
        });
        call.end(granted.as_ref().map(|(fence, _)| Some(*fence)).map_err(Error::kind));
        granted.map_err(|error| self.origin.of(error))
    }

    /// Ends the call that asks a record. Returns what it has replied beside what was acquired.
    pub(super) fn entered(&self, acquired: Result<Acquired>, call: &Call<'_>) -> Result<Entered> {
        let entered = acquired.and_then(|acquired| match acquired.reply {
            Reply::Begun { fence, slot, missed } => Ok(Entered::Runs { fence, slot, missed, acquired }),
            Reply::Finished { value } => {
                Ok(Entered::Finished(Done { value, key: self.key.clone(), origin: self.origin }))
            }
            reply => Err(record_error(reply).with_key(self.key.as_str())),
        });
        let fence = |entered: &Entered| match entered {
            Entered::Runs { fence, .. } => Some(*fence),
            Entered::Finished(_) => None,
        };
        call.end(entered.as_ref().map(fence).map_err(Error::kind));
        entered.map_err(|error| self.origin.of(error))
    }

    pub(super) fn hold(self, id: Id, (fence, acquired): (u64, Acquired)) -> Guard {
        let Self { locker, kind, key, settings, release, origin, .. } = self;
        let hold = Hold::new(locker, kind, key, id, fence, settings, &acquired, origin.function());
        Guard::new(hold, release)
    }
}

/// What a record has replied to a call.
#[derive(Debug)]
pub(super) enum Entered {
    /// The caller runs.
    Runs { fence: u64, slot: Option<Timestamp>, missed: u64, acquired: Acquired },
    /// Another call has succeeded.
    Finished(Done),
}

/// The success of another run.
#[derive(Debug)]
#[cfg_attr(not(feature = "idempotent"), expect(dead_code, reason = "results are kept with the feature"))]
pub struct Done {
    pub(super) value: Value,
    pub(super) key: Key,
    pub(super) origin: Origin,
}

/// Returns the error for the reply of a record that neither runs nor is done.
pub(super) fn record_error(reply: Reply) -> Error {
    match reply {
        Reply::Lost => Error::new(
            ErrorKind::Lost,
            "nobody knows whether the run before has succeeded: it ended without a report. Look at its effects, and \
             delete the record to run again",
        ),
        Reply::Mismatch => Error::new(
            ErrorKind::Conflict,
            "a call with the same key has other arguments that must be the same",
        ),
        reply => reply.into_error(),
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("LockRequest");
        out.field("key", &self.key).field("kind", &self.kind).field("settings", &self.settings);
        out.finish_non_exhaustive()
    }
}

impl Counted for LockRequest {
    fn subject(&self) -> Subject<'_> {
        let Self { locker, key, kind, origin, .. } = self;
        Subject { locker, key, kind: (*kind).into(), function: origin.function() }
    }
}

/// The requests of one attempt to acquire.
struct LockOp<'a> {
    id: Id,
    of: &'a LockRequest,
    /// What a record is asked. `None`: it is another kind.
    ask: Option<&'a Ask>,
    call: Call<'a>,
}

impl WaitOp for LockOp<'_> {
    fn id(&self) -> Id {
        self.id
    }

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        if let Some(ask) = self.ask {
            return Request::Record(ask.begin(self.id, self.lease(), wait));
        }
        self.of.kind.acquire_named(self.id, self.of.alone.then_some(self.id), self.lease(), wait)
    }

    fn confirm(&self) -> Option<Request> {
        Some(self.of.kind.renew(self.id, self.lease()))
    }

    fn cancel(&self, tombstone: bool) -> Request {
        self.of.kind.cancel(self.id, tombstone)
    }

    fn lease(&self) -> Duration {
        self.of.settings.lease
    }

    fn usable(&self) -> Duration {
        self.of.settings.usable()
    }

    fn renews(&self) -> bool {
        self.of.settings.renew
    }

    fn fair(&self) -> bool {
        self.of.settings.fair
    }

    fn pauses(&self) -> Backoff {
        self.of.settings.pauses()
    }

    fn is_long(&self) -> bool {
        self.of.settings.is_long
    }

    fn is_explained(&self) -> bool {
        true
    }

    fn may_deadlock(&self) -> bool {
        true
    }

    fn listed(&self, context: &Context<'_>) -> Option<ListedWait> {
        let LockRequest { key, kind, origin, around, .. } = self.of;
        let mut holds = holds_of_bodies(&Caller::of(context));
        holds.extend(around.iter().filter_map(|hold| hold.around()));
        Some(ListedWait {
            id: self.id,
            key: key.clone(),
            permits: kind.permit_count(),
            fair: self.fair(),
            function: origin.function().unwrap_or_default().to_owned(),
            place: origin.place().unwrap_or_default(),
            around: holds,
        })
    }

    /// The store names the next time to ask for a lock again, unless the caller has chosen a shorter `retry_delay`.
    fn longest_recheck(&self, _: &Locker) -> Duration {
        match (self.of.kind, self.of.settings.retry_delay) {
            (HoldKind::Lock, delay) if delay >= RETRY_DELAY => Duration::MAX,
            (_, delay) => delay,
        }
    }
}
