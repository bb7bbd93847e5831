//! The locker: a store with defaults, and how it is asked.

mod asking;
mod attempt;

use crate::{
    Error, ErrorKind, Result, background,
    backoff::Backoff,
    blocking::block_on,
    clock::Timestamp,
    config::{COMMAND_TIMEOUT, LockerBuilder, Settings},
    door::Door,
    errands::Errands,
    error::Cause,
    handles::{Barrier, Counter, Event, Latch, LockAllRequest, RateLimiter, Refusals, Watchdog},
    id::Id,
    key::{Key, KeyFormat, KeyPart},
    panics,
    primitives::{Kind, Reply, Request, rate_limiter::Quota, rwlock::Mode},
    request::LockRequest,
    store::{Calling, Store},
    stores::Memory,
};
pub(crate) use asking::{Answer, Asking, Patience};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either},
};
use std::{
    fmt,
    future::{Ready, ready},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

/// How long a request that nobody waits in line for is tried.
pub(crate) const PERSISTENCE: Duration = Duration::from_secs(5);

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
    errands: Errands,
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
        let (errands, refusals) = (Errands::default(), Refusals::default());
        Self(Arc::new(Inner { store, settings, prefix, key_format, command_timeout, errands, refusals }))
    }

    /// A locker on a new embedded store, shared with its clones only. It protects this process, nothing beyond.
    ///
    /// `memory://` in a URL means one store for the whole process instead.
    #[must_use]
    pub fn memory() -> Self {
        Self::with_defaults(Memory::new())
    }

    /// Opens the store behind `url` with the defaults of [`LockerBuilder`].
    ///
    /// # Errors
    /// As [`LockerBuilder::build`].
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().url(url).build().await
    }

    /// [`connect`](Self::connect) for callers that are not async.
    ///
    /// # Errors
    /// As [`LockerBuilder::build`].
    pub fn connect_blocking(url: &str) -> Result<Self> {
        block_on(Self::connect(url))
    }

    /// Starts from the defaults: lease 10 s, timeout 10 s, attempts unlimited, re-checks at most 2 s apart.
    pub fn builder() -> LockerBuilder {
        LockerBuilder::default()
    }

    /// Asks for the exclusive lock called `name`.
    pub fn lock(&self, name: &str) -> LockRequest {
        self.request(Kind::Lock, Key::named(self.prefix(), "lock", name))
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
        self.request(Kind::Lock, Key::on(self.prefix(), self.key_format(), name, arguments))
    }

    /// Asks for a permit of the semaphore called `name`, which has `size` of them from now on, for everybody: what
    /// the last caller gave holds. A smaller size evicts nobody; with size 0 everybody waits until it is raised.
    ///
    /// The request is the lock's, lease, renewal and guard included; `permits(n)` takes several at once.
    pub fn semaphore(&self, name: &str, size: u64) -> LockRequest {
        self.request(Kind::Semaphore { size, permits: 1 }, Key::named(self.prefix(), "semaphore", name))
    }

    /// Asks for the read/write lock called `name` together with other readers. First come, first served: a reader
    /// does not pass a writer who waits.
    pub fn read_lock(&self, name: &str) -> LockRequest {
        self.request(Kind::ReadWrite(Mode::Read), Key::named(self.prefix(), "rwlock", name))
    }

    /// Asks for the read/write lock called `name` alone.
    pub fn write_lock(&self, name: &str) -> LockRequest {
        self.request(Kind::ReadWrite(Mode::Write), Key::named(self.prefix(), "rwlock", name))
    }

    /// Asks for all these locks, the same ones that [`lock`](Self::lock) asks for: all or nothing, in an order of
    /// their own, so that callers who want the same locks in different orders do not wait for each other for ever.
    pub fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> LockAllRequest {
        let keys = names.into_iter().map(|name| Key::named(self.prefix(), "lock", name.as_ref()));
        self.request_all(Kind::Lock, keys.collect())
    }

    /// The rate limiter called `name`, with `quota` from now on, for everybody.
    #[must_use]
    pub fn rate_limiter(&self, name: &str, quota: Quota) -> RateLimiter {
        self.limiter(Key::named(self.prefix(), "rate", name), quota)
    }

    /// The event called `name`.
    #[must_use]
    pub fn event(&self, name: &str) -> Event {
        Event::new(self.clone(), Key::named(self.prefix(), "event", name))
    }

    /// The watchdog called `name`.
    #[must_use]
    pub fn watchdog(&self, name: &str) -> Watchdog {
        Watchdog::new(self.clone(), Key::named(self.prefix(), "watchdog", name))
    }

    /// The barrier called `name`, at which `parties` callers wait for each other.
    #[must_use]
    pub fn barrier(&self, name: &str, parties: u64) -> Barrier {
        Barrier::new(self.clone(), Key::named(self.prefix(), "barrier", name), parties)
    }

    /// The latch called `name`, which opens when it was counted down `count` times.
    #[must_use]
    pub fn latch(&self, name: &str, count: u64) -> Latch {
        Latch::new(self.clone(), Key::named(self.prefix(), "latch", name), count)
    }

    /// The counter called `name`.
    #[must_use]
    pub fn counter(&self, name: &str) -> Counter {
        Counter::new(self.clone(), Key::named(self.prefix(), "counter", name))
    }

    /// The low-level door, for servers and tools: names instead of guards.
    #[must_use]
    pub fn door(&self) -> Door {
        Door::new(self.clone())
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
        self.0.errands.done().await;
        self.store().pushes().errands().done().await;
    }

    pub(crate) fn request(&self, kind: Kind, key: Key) -> LockRequest {
        LockRequest::new(self.clone(), kind, key, self.0.settings)
    }

    pub(crate) fn request_all(&self, kind: Kind, keys: Vec<Key>) -> LockAllRequest {
        LockAllRequest::new(self, kind, keys, self.0.settings)
    }

    pub(crate) fn limiter(&self, key: Key, quota: Quota) -> RateLimiter {
        RateLimiter::new(self.clone(), key, quota, self.0.settings.timeout)
    }

    pub(crate) fn with_defaults(store: impl Store) -> Self {
        let (settings, key_format) = (Settings::default(), KeyFormat::default());
        Self::new(Arc::new(store), settings, String::new(), key_format, COMMAND_TIMEOUT)
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
        if self.store().liveness().is_some() { Id::random() } else { Id::local() }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// Sends `request` without anybody waiting for it, again and again until it is certain or `give_up` has passed; also
    /// where nobody could be reached for a reason that usually does not pass, such as a password. Answered inline where
    /// the store can.
    pub(crate) fn send_off(
        &self,
        key: &Key,
        request: Request,
        give_up: Duration,
        then: impl FnOnce(Result<Told>) + Send + 'static,
    ) {
        // This may be the end of a guard, and that of a panic: a store that panics, too, must not end the process.
        let at_once = panics::contain(|| self.at_once(key, &request));
        if let Some(answer) = at_once.unwrap_or_else(|| Some(Err(panicked()))) {
            return then(answer.map(Told::at_once));
        }
        let (locker, key, errand) = (self.clone(), key.clone(), self.0.errands.begin());
        background::spawn(async move {
            let (sent, passes) =
                (Timestamp::now(), |error: &Error| error.is_temporary() || error.is_unsent());
            then(locker.repeat(&key, request, sent, give_up, passes).await);
            drop(errand);
        });
    }

    /// Repeats an idempotent request until it is certain or `patience` is over.
    pub(crate) fn insist<'a>(&'a self, key: &'a Key, request: Request, patience: Duration) -> Soon<'a, Told> {
        match self.at_once(key, &request) {
            Some(answer) => Either::Left(ready(answer.map(Told::at_once))),
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
    ) -> Result<Told> {
        let (mut backoff, mut repeated, mut cause) = (Backoff::default(), false, Cause::default());
        let until = sent + patience;
        loop {
            let answer = self.call_until(key, request.clone(), sent, until).await;
            let error = match answer {
                Ok(reply) => return Ok(Told { reply, repeated, sent: Some(sent) }),
                Err(error) => cause.explain(error),
            };
            let delay = backoff.next_delay();
            if !passes(&error) || Timestamp::now() + delay >= until {
                return Err(if repeated { error.unknown() } else { error });
            }
            if !error.is_certain() {
                repeated = true;
                request.set_repeated();
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
    ) -> Soon<'a, Reply> {
        match self.at_once(key, &request) {
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
    /// liveness is across a network: its call would be made only to be dropped.
    pub(crate) fn at_once(&self, key: &Key, request: &Request) -> Option<Result<Reply>> {
        if let Err(error) = background::ready() {
            return Some(Err(error.with_key(key.as_str())));
        }
        if self.store().liveness().is_some() {
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
pub(crate) type Soon<'a, T> = Either<Ready<Result<T>>, BoxFuture<'a, Result<T>>>;

/// The certain answer to a request that may have been sent more than once.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) reply: Reply,
    /// An earlier copy may have been carried out.
    pub(crate) repeated: bool,
    /// When that one was sent which was answered; `None`: it was answered at once.
    pub(crate) sent: Option<Timestamp>,
}

impl Told {
    fn at_once(reply: Reply) -> Self {
        Self { reply, repeated: false, sent: None }
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
