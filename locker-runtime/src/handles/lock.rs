//! Requests for locks, permits and read/write locks.

use crate::{
    lease::{Caller, Guard, Hold, Release, any_body, check_bodies, check_holds},
    locker::{Acquired, Ahead, Locker, WaitOp},
    settings::{RETRY_DELAY, Settings, hold_setters, waiting_setters},
};
use locker_core::{
    blocking::block_on,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::{Key, KeyPart},
    primitives::{HoldKind, Reply, Request, Wait, rwlock::Mode},
};
use std::{
    fmt,
    future::poll_fn,
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
    function: Option<&'static str>,
}

impl Locker {
    /// Returns a request for the exclusive lock called `name`.
    pub fn lock(&self, name: &str) -> LockRequest {
        self.request(HoldKind::Lock, Key::named(self.prefix(), "lock", name))
    }

    /// Returns a request for the lock that `#[lock_on_argument(name = "..", args(..))]` takes for these arguments.
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

    /// Returns a request for a permit of the semaphore called `name`. The most recent `size` applies to all callers: a
    /// smaller one evicts no holder, and 0 blocks new holders until it is raised. The greatest is 2^53 - 1.
    ///
    /// [`permits`](LockRequest::permits) takes several permits at once.
    pub fn semaphore(&self, name: &str, size: u64) -> LockRequest {
        self.request(HoldKind::Semaphore { size, permits: 1 }, Key::named(self.prefix(), "semaphore", name))
    }

    /// Returns a request for the read/write lock called `name`, to hold it together with other readers. A reader does
    /// not overtake a waiting writer. It is another lock than [`lock`](Self::lock) of the same name.
    pub fn read_lock(&self, name: &str) -> LockRequest {
        self.request(HoldKind::ReadWrite(Mode::Read), Key::named(self.prefix(), "rwlock", name))
    }

    /// Returns a request for the read/write lock called `name`, to hold it alone.
    pub fn write_lock(&self, name: &str) -> LockRequest {
        self.request(HoldKind::ReadWrite(Mode::Write), Key::named(self.prefix(), "rwlock", name))
    }

    pub(crate) fn request(&self, kind: HoldKind, key: Key) -> LockRequest {
        LockRequest::new(self.clone(), kind, key, self.settings())
    }
}

impl LockRequest {
    pub(crate) fn new(locker: Locker, kind: HoldKind, key: Key, settings: Settings) -> Self {
        Self { locker, kind, key, settings, has_permits: true, release: Release::OnDrop, function: None }
    }

    waiting_setters!();

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

    /// Makes the hold last until the end of its lease, however the guard ends.
    #[doc(hidden)]
    pub fn release_on_expiry(mut self) -> Self {
        self.release = Release::OnExpiry;
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

    /// Sets the annotated function, which errors and events name.
    pub(crate) fn function(mut self, path: &'static str) -> Self {
        self.function = Some(path);
        self
    }

    /// Acquires, waiting if necessary.
    ///
    /// # Errors
    /// `TimedOut` or `RetriesExhausted` if it was not granted; `Unavailable` if the store cannot be reached, which a
    /// waiter learns up to a `command_timeout` after its timeout; `Misused` if a setting is wrong, if the size of a
    /// semaphore is lowered below the permits asked for, or if the function around the call holds it through an
    /// attribute and would wait for itself; `Conflict` if the name is deleted during the wait, or the key belongs to
    /// another kind of primitive.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue and releases a grant that was under way.
    #[expect(clippy::manual_async_fn, reason = "future size, see locker.rs")]
    pub fn acquire(self) -> impl Future<Output = Result<Guard>> + Send {
        async move {
            self.locker.introduce(self.settings.lease);
            let id = self.locker.new_id();
            let checked = match self.check() {
                Ok(()) if any_body() && self.may_wait() => {
                    poll_fn(|context| Poll::Ready(self.check_bodies(context))).await
                }
                checked => checked,
            };
            let acquired = match checked {
                Ok(()) => {
                    self.locker.ask(&self.key, &LockOp { id, of: &self }, self.settings.patience()).await
                }
                Err(error) => Err(error),
            };
            let function = self.function;
            acquired
                .and_then(|acquired| self.hold(id, &acquired))
                .map_err(|error| error.of_function(function))
        }
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
        self.settings.check()
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
            Some((_, Acquired { reply: Reply::Busy { .. }, .. })) => Ok(None),
            Some((id, acquired)) => {
                let function = self.function;
                self.hold(id, &acquired).map(Some).map_err(|error| error.of_function(function))
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

    fn hold(self, id: Id, acquired: &Acquired) -> Result<Guard> {
        let Reply::Granted { fence } = acquired.reply else {
            return Err(self.kind.refusal(&acquired.reply).with_key(self.key.as_str()));
        };
        let Self { locker, kind, key, settings, release, function, .. } = self;
        let hold = Hold::new(locker, kind, key, id, fence, settings, acquired, function);
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

/// The requests of one attempt to acquire.
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

    /// The store names the next time to ask for a lock again, unless the caller has chosen a shorter `retry_delay`.
    fn longest_recheck(&self, _: &Locker) -> Duration {
        match (self.of.kind, self.of.settings.retry_delay) {
            (HoldKind::Lock, delay) if delay >= RETRY_DELAY => Duration::MAX,
            (_, delay) => delay,
        }
    }
}
