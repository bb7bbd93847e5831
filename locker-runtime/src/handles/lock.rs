//! Requests for locks, permits and read/write locks.

use crate::{
    blocking::block_on,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::{Key, KeyPart},
    lease::{Guard, Hold, Release},
    locker::{Acquired, Locker, WaitOp},
    primitives::{HoldKind, Reply, Request, Wait, rwlock::Mode},
    settings::{RETRY_DELAY, Settings},
};
use std::{fmt, time::Duration};

/// A request for a lock, to be adjusted and then awaited: made by [`Locker::lock`] and its siblings.
///
/// What is not set here is as the [`Locker`] has it.
#[derive(Clone)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LockRequest {
    locker: Locker,
    kind: HoldKind,
    key: Key,
    settings: Settings,
    /// `permits` was asked of nothing but semaphores.
    has_permits: bool,
    release: Release,
    function: &'static str,
}

impl Locker {
    /// Asks for the exclusive lock called `name`.
    pub fn lock(&self, name: &str) -> LockRequest {
        self.request(HoldKind::Lock, Key::named(self.prefix(), "lock", name))
    }

    /// Asks for the lock that `#[lock_on_argument(name = "..", args(..))]` takes for these arguments: the same key.
    ///
    /// ```
    /// # async fn example(locker: locker_runtime::Locker) -> locker_runtime::Result<()> {
    /// let (card, amount) = (6222, 100);
    /// let guard = locker.lock_on("bank.withdraw", &[&card, &amount]).acquire().await?;
    /// # guard.release().await }
    /// ```
    pub fn lock_on(&self, name: &str, arguments: &[&dyn KeyPart]) -> LockRequest {
        self.request(HoldKind::Lock, Key::on(self.prefix(), self.key_format(), name, arguments))
    }

    /// Asks for a permit of the semaphore called `name`, which has `size` of them from now on, for everybody: what
    /// the last caller gave holds. A smaller size evicts nobody; with size 0 everybody waits until it is raised.
    ///
    /// The request is the lock's, lease, renewal and guard included; `permits(n)` takes several at once.
    pub fn semaphore(&self, name: &str, size: u64) -> LockRequest {
        self.request(HoldKind::Semaphore { size, permits: 1 }, Key::named(self.prefix(), "semaphore", name))
    }

    /// Asks for the read/write lock called `name` together with other readers. First come, first served: a reader
    /// does not pass a writer who waits.
    pub fn read_lock(&self, name: &str) -> LockRequest {
        self.request(HoldKind::ReadWrite(Mode::Read), Key::named(self.prefix(), "rwlock", name))
    }

    /// Asks for the read/write lock called `name` alone.
    pub fn write_lock(&self, name: &str) -> LockRequest {
        self.request(HoldKind::ReadWrite(Mode::Write), Key::named(self.prefix(), "rwlock", name))
    }

    pub(crate) fn request(&self, kind: HoldKind, key: Key) -> LockRequest {
        LockRequest::new(self.clone(), kind, key, self.settings())
    }
}

impl LockRequest {
    pub(crate) fn new(locker: Locker, kind: HoldKind, key: Key, settings: Settings) -> Self {
        Self { locker, kind, key, settings, has_permits: true, release: Release::OnDrop, function: "" }
    }

    /// How long others wait if this holder dies. Default 10 s, 1 ms to 10 years.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long to wait for the turn. Default 10 s; zero tries once; [`Duration::MAX`] waits for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// How many attempts, the first one included. They come exactly `retry_delay` apart; being handed the lock
    /// meanwhile is not one. Default: as many as fit into the timeout.
    pub fn max_retry(mut self, attempts: u32) -> Self {
        self.settings.max_retry = Some(attempts);
        self
    }

    /// The time between two attempts where `max_retry` is set. Default 2 s.
    ///
    /// Without `max_retry` it is the longest pause after an error. A waiter for a lock on Redis asks again for itself
    /// at least that often only if it is shorter than 2 s: its process asks for all of its waiters.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.settings.retry_delay = delay;
        self
    }

    /// Whether the lease is kept alive while the guard lives. Default `true`.
    pub fn renew(mut self, renew: bool) -> Self {
        self.settings.renew = renew;
        self
    }

    /// The longest time the guard can be held, renewals included: after it the hold is released and counts as
    /// lost. Default 10 leases.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.settings.max_hold = Some(max_hold);
        self
    }

    /// How many permits of a semaphore to take, all or nothing. Default 1, at most the semaphore's size.
    pub fn permits(mut self, permits: u64) -> Self {
        match &mut self.kind {
            HoldKind::Semaphore { permits: taken, .. } => *taken = permits,
            _ => self.has_permits = false,
        }
        self
    }

    /// `false` lets whoever comes first take a free lock, past those who wait with `false`, too: nobody overtakes the first
    /// in line when it keeps its turn. One that stands behind some with `false` waits for as long as those are overtaken.
    /// Default `true`.
    pub fn fair(mut self, fair: bool) -> Self {
        self.settings.fair = fair;
        self
    }

    /// Leaves the lock to the end of its lease, however the guard ends.
    #[doc(hidden)]
    pub fn release_on_expiry(mut self) -> Self {
        self.release = Release::OnExpiry;
        self
    }

    /// The patience began at `start`, with other requests.
    pub(crate) fn started(mut self, start: Timestamp) -> Self {
        if self.settings.timeout != Duration::MAX {
            self.settings.timeout = self.settings.timeout.saturating_sub(Timestamp::now().since(start));
        }
        self
    }

    /// How long it waits, alone or with others.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.timeout
    }

    /// The function's name, for diagnostics.
    pub(crate) fn function(mut self, name: &'static str) -> Self {
        self.function = name;
        self
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// `TimedOut` or `RetriesExhausted` when it did not come, `Unavailable` when the store cannot serve, `Misused`
    /// when a setting is wrong or the size of a semaphore was lowered below what is waited for, `Conflict` when the key
    /// belongs to another kind of primitive.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and gives back what may have been granted meanwhile; the
    /// place in the queue is lost.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store its argument twice in every waiter"
    )]
    pub fn acquire(self) -> impl Future<Output = Result<Guard>> + Send {
        async move {
            self.check()?;
            let id = self.locker.new_id();
            let answer =
                self.locker.ask(&self.key, &LockOp { id, of: &self }, self.settings.patience()).await?;
            self.hold(id, &answer)
        }
    }

    fn check(&self) -> Result<()> {
        if !self.has_permits {
            return Err(Error::new(ErrorKind::Misused, "permits belong to semaphores: a lock has none"));
        }
        self.kind.check()?;
        self.settings.check()
    }

    /// Tries once, without waiting. `None`: somebody else holds it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `TimedOut` or `RetriesExhausted`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(mut self) -> Result<Option<Guard>> {
        self.settings.timeout = Duration::ZERO;
        match self.acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
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

    fn hold(self, id: Id, answer: &Acquired) -> Result<Guard> {
        let Reply::Granted { fence } = answer.reply else {
            return Err(self.kind.refusal(&answer.reply).with_key(self.key.as_str()));
        };
        let Self { locker, kind, key, settings, release, function, .. } = self;
        let hold = Hold::new(locker, kind, key, id, fence, settings, answer, function);
        Ok(Guard::new(hold, release))
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("LockRequest");
        out.field("key", &self.key).field("kind", &self.kind).field("settings", &self.settings);
        out.finish_non_exhaustive()
    }
}

/// The requests of one attempt to hold something.
struct LockOp<'a> {
    id: Id,
    of: &'a LockRequest,
}

impl WaitOp for LockOp<'_> {
    fn id(&self) -> Id {
        self.id
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        self.of.kind.acquire(self.id, self.lease(), wait)
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

    fn renews(&self) -> bool {
        self.of.settings.renew
    }

    fn fair(&self) -> bool {
        self.of.settings.fair
    }

    /// A store knows when it is worth asking for a lock again. It is asked more often if the caller says so.
    fn longest_recheck(&self) -> Duration {
        match (self.of.kind, self.of.settings.retry_delay) {
            (HoldKind::Lock, delay) if delay >= RETRY_DELAY => Duration::MAX,
            (_, delay) => delay,
        }
    }
}
