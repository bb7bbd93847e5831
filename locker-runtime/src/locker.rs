//! The locker: a store with defaults, and the only waiting loop.

use crate::{
    Error, ErrorKind, Result, background,
    blocking::block_on,
    clock::Timestamp,
    config::{LockerBuilder, Settings},
    door::Door,
    error::Cause,
    handles::{Barrier, Counter, Event, Latch, LockAllRequest, RateLimiter, Watchdog},
    id::Id,
    key::{Key, KeyFormat, KeyPart},
    primitives::{
        GRANT_WINDOW, Kind, Reply, Request, Signal, TOMBSTONE, Wait, rate_limiter::Quota, rwlock::Mode,
    },
    pushes::Subscription,
    request::LockRequest,
    store::{Calling, Store},
    stores::Memory,
};
use futures_util::future::{Either, ready};
use std::{sync::Arc, time::Duration};

/// A store together with defaults: everything else starts here. Cheap to clone; clones share the store.
///
/// ```
/// # async fn example() -> locker_runtime::Result<()> {
/// let locker = locker_runtime::Locker::memory();
/// let guard = locker.lock("invoice 7").acquire().await?;
/// // nobody else holds "invoice 7" now
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    settings: Settings,
    prefix: String,
    key_format: KeyFormat,
}

impl Locker {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        settings: Settings,
        prefix: String,
        key_format: KeyFormat,
    ) -> Self {
        Self(Arc::new(Inner { store, settings, prefix, key_format }))
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
        Self::new(Arc::new(store), Settings::default(), String::new(), KeyFormat::default())
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// Sends `request` without anybody waiting for it, again and again until it is certain or `give_up` has passed.
    /// Answered inline where the store can.
    pub(crate) fn send_off(
        &self,
        key: &Key,
        request: Request,
        give_up: Duration,
        then: impl FnOnce(Result<Told>) + Send + 'static,
    ) {
        if let Some(answer) = self.at_once(key, &request) {
            return then(answer.map(Told::at_once));
        }
        let (locker, key) = (self.clone(), key.clone());
        background::spawn(async move { then(locker.insist(&key, request, give_up).await) });
    }

    /// Repeats an idempotent request until it is certain or `patience` is over.
    pub(crate) fn insist<'a>(
        &'a self,
        key: &'a Key,
        request: Request,
        patience: Duration,
    ) -> impl Future<Output = Result<Told>> + Send + 'a {
        match self.at_once(key, &request) {
            Some(answer) => Either::Left(ready(answer.map(Told::at_once))),
            None => Either::Right(Box::pin(self.repeat(key, request, Timestamp::now() + patience))),
        }
    }

    async fn repeat(&self, key: &Key, request: Request, until: Timestamp) -> Result<Told> {
        let (mut backoff, mut repeated, mut cause) = (Backoff::default(), false, Cause::default());
        loop {
            let sent = Some(Timestamp::now());
            let answer = self.call_until(key, request.clone(), until).await;
            match answer.map_err(|error| cause.explain(error)) {
                Err(error) if error.is_temporary() && Timestamp::now() < until => {
                    repeated |= !error.is_certain();
                    background::sleep(backoff.next_delay()).await;
                }
                Err(error) => return Err(if repeated { error.unknown() } else { error }),
                Ok(reply) => return Ok(Told { reply, repeated, sent }),
            }
        }
    }

    /// One call, not waited for longer than `until`. A request that is not answered at once goes where it does not
    /// widen every waiter's future.
    fn call_until<'a>(
        &'a self,
        key: &'a Key,
        request: Request,
        until: Timestamp,
    ) -> impl Future<Output = Result<Reply>> + Send + 'a {
        match self.at_once(key, &request) {
            Some(answer) => Either::Left(ready(answer)),
            None => Either::Right(Box::pin(async move {
                let answer = in_time(self.store().call(key, &request), until).await;
                answer.map_err(|error| error.with_key(key.as_str()))
            })),
        }
    }

    /// The answer of a store that answers at once. Of one that does not, nothing has been asked yet.
    pub(crate) fn at_once(&self, key: &Key, request: &Request) -> Option<Result<Reply>> {
        match self.store().call(key, request) {
            Calling::Ready(answer) => Some(answer.into_inner().map_err(|error| error.with_key(key.as_str()))),
            Calling::Pending(_) => None,
        }
    }

    /// The only waiting loop: send, and while queued wait for a push, the time to ask again, or the end of
    /// patience; on giving up (or being dropped) take the attempt back from the background.
    pub(crate) fn ask<'a, A: Asking>(
        &'a self,
        key: &'a Key,
        what: &'a A,
        patience: Patience,
    ) -> impl Future<Output = Result<Answer>> + 'a {
        let mut attempt = Attempt::start(self, key, what, patience);
        async move {
            loop {
                let next = match attempt.send().await? {
                    Step::Done(answer) => return Ok(answer),
                    Step::Confirm { fence } => Ok(fence),
                    Step::Wait { until, then } => Err((until, then)),
                };
                let fence = match next {
                    Ok(fence) => fence,
                    Err((until, then)) => {
                        let signal = attempt.signal(until).await;
                        match attempt.heard(signal, then)? {
                            Step::Done(answer) => return Ok(answer),
                            Step::Confirm { fence } => fence,
                            Step::Wait { .. } => continue,
                        }
                    }
                };
                if let Some(answer) = attempt.confirm(fence).await? {
                    return Ok(answer);
                }
            }
        }
    }
}

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

/// The requests of one attempt, whatever the primitive.
pub(crate) trait Asking {
    fn id(&self) -> Id;
    fn ask(&self, wait: Option<Wait>) -> Request;
    fn cancel(&self, tombstone: bool) -> Request;

    /// Sent when a push says that the caller has been served; `None`: asking again does it.
    fn confirm(&self) -> Option<Request> {
        None
    }

    /// How long what is asked for lasts.
    fn lease(&self) -> Duration {
        GRANT_WINDOW
    }

    fn fair(&self) -> bool {
        true
    }

    /// What did not happen when a wait was in vain.
    fn hope(&self) -> &'static str {
        "acquired"
    }
}

/// How long and how often a caller asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) timeout: Duration,
    pub(crate) max_retry: Option<u32>,
    pub(crate) retry_delay: Duration,
}

impl Patience {
    /// For what is told, not polled: asking again is up to the store's answers.
    pub(crate) fn up_to(timeout: Duration) -> Self {
        Self { timeout, max_retry: None, retry_delay: Duration::MAX }
    }
}

/// The end of a successful attempt.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// Just before the request was sent that the reply answers: leases are counted from here.
    pub(crate) sent: Timestamp,
    /// Whether an earlier copy of the request may still arrive.
    pub(crate) doubtful: bool,
    /// How long it took, when it was not had at once.
    pub(crate) waited: Option<Duration>,
}

enum Step {
    Done(Answer),
    Confirm { fence: u64 },
    Wait { until: Timestamp, then: Then },
}

/// What the end of a wait brings that no signal has ended.
enum Then {
    AskAgain,
    GiveUp,
    /// The turn that was told has come. Boxed: every waiter has room for this, few need it.
    Take(Box<Answer>),
}

/// One attempt on its way. Dropped before it is done, it is taken back.
struct Attempt<'a, A: Asking> {
    locker: &'a Locker,
    key: &'a Key,
    what: &'a A,
    max_retry: Option<u32>,
    retry_delay: Duration,
    mailbox: Subscription<'a>,
    started: Timestamp,
    deadline: Timestamp,
    count: u32,
    backoff: Backoff,
    cause: Cause,
    /// Something of this attempt may be at the store.
    out: bool,
    doubtful: bool,
    waited: bool,
}

impl<'a, A: Asking> Attempt<'a, A> {
    fn start(locker: &'a Locker, key: &'a Key, what: &'a A, patience: Patience) -> Self {
        let (mailbox, started) = (locker.store().pushes().subscribe(what.id()), Timestamp::now());
        let (deadline, backoff) = (started + patience.timeout, Backoff::default());
        Self {
            locker,
            key,
            what,
            max_retry: patience.max_retry,
            retry_delay: patience.retry_delay,
            mailbox,
            started,
            deadline,
            count: 1,
            backoff,
            cause: Cause::default(),
            out: false,
            doubtful: false,
            waited: false,
        }
    }

    /// One attempt: a send, and what follows from the answer.
    async fn send(&mut self) -> Result<Step> {
        let last = self.is_last();
        let live = self.locker.store().liveness();
        let wait = (!last).then(|| Wait { live, fair: self.what.fair() });
        let sent = if self.out { Timestamp::now() } else { self.started };
        let first = !std::mem::replace(&mut self.out, true);
        let bound = if self.tries_once() { Timestamp::NEVER } else { self.deadline };
        // Until the answer is here, a dropped future must assume that the request may still arrive.
        let doubtful = std::mem::replace(&mut self.doubtful, true);
        let answer = self.locker.call_until(self.key, self.what.ask(wait), bound).await;
        self.doubtful = doubtful;
        let late = live.is_some() && Timestamp::now() > sent + self.what.lease() / 2;
        match answer {
            Ok(Reply::Queued { recheck_in, .. }) => Ok(self.wait_for(recheck_in)),
            Ok(Reply::Busy { retry_after }) => {
                self.out = self.doubtful;
                Err(self.exhausted(retry_after))
            }
            Ok(Reply::Granted { fence }) if (late || !first) && self.what.confirm().is_some() => {
                Ok(Step::Confirm { fence })
            }
            Ok(reply @ Reply::Admitted { wait, .. }) if !wait.is_zero() => {
                let answer = Answer { reply, sent, doubtful, waited: Some(wait) };
                Ok(Step::Wait { until: Timestamp::now() + wait, then: Then::Take(Box::new(answer)) })
            }
            Ok(reply) => Ok(Step::Done(self.done(reply, sent))),
            Err(error) => self.failed(error.with_key(self.key.as_str())),
        }
    }

    /// What the end of a wait means.
    fn heard(&mut self, signal: Option<Signal>, then: Then) -> Result<Step> {
        match (signal, then) {
            (Some(Signal::Held { fence, until }), _) => {
                Ok(self.held(fence, until).map_or(Step::Confirm { fence }, Step::Done))
            }
            (Some(Signal::Granted { fence }), _) => Ok(Step::Confirm { fence }),
            (Some(Signal::Wake), then) => Ok(Step::Wait { until: Timestamp::now(), then }),
            (Some(Signal::Deleted), _) => Err(self.deleted()),
            (None, Then::AskAgain) => {
                self.count += 1;
                Ok(Step::Wait { until: Timestamp::now(), then: Then::AskAgain })
            }
            (None, Then::Take(answer)) => Ok(Step::Done(self.done(answer.reply, answer.sent))),
            (None, Then::GiveUp) => Err(self.timed_out()),
        }
    }

    /// A lease that was told with its end, unless much of it is gone already.
    fn held(&mut self, fence: u64, until: Timestamp) -> Option<Answer> {
        let lease = self.what.lease();
        if Timestamp::now() + lease / 2 < until {
            return Some(self.done(Reply::Granted { fence }, until - lease));
        }
        self.mailbox.reopen();
        None
    }

    /// Being handed something by a message, or by an earlier copy of the request, starts the lease at an unknown
    /// time: renewing starts it at a known one. `None`: it was lost on the way.
    async fn confirm(&mut self, fence: u64) -> Result<Option<Answer>> {
        let (sent, Some(confirm)) = (Timestamp::now(), self.what.confirm()) else { return Ok(None) };
        match self.locker.insist(self.key, confirm, GRANT_WINDOW).await {
            Ok(Told { reply: Reply::Renewed { fence: granted }, sent: again, .. }) if granted == fence => {
                let sent = again.unwrap_or(sent);
                // A lease that is over when its holder hears of it is none.
                let over = again.is_some() && Timestamp::now() >= sent + self.what.lease();
                Ok((!over).then(|| self.done(Reply::Granted { fence }, sent)))
            }
            Err(error) if !error.is_temporary() => Err(error),
            _ => Ok(None),
        }
    }

    async fn signal(&mut self, until: Timestamp) -> Option<Signal> {
        // Where calls are answered at once, the first wait begins with the attempt, and reading clocks is what costs.
        let at_once = self.locker.store().liveness().is_none() && !std::mem::replace(&mut self.waited, true);
        let now = if at_once { self.started } else { Timestamp::now() };
        tokio::select! {
            biased;
            signal = self.mailbox.next() => Some(signal),
            () = background::sleep_from(now, until) => None,
        }
    }

    fn done(&mut self, reply: Reply, sent: Timestamp) -> Answer {
        self.out = false;
        let waited = (sent > self.started).then(|| sent.since(self.started));
        Answer { reply, sent, doubtful: self.doubtful, waited }
    }

    fn tries_once(&self) -> bool {
        self.deadline == self.started
    }

    fn is_last(&self) -> bool {
        self.tries_once() || self.max_retry.is_some_and(|most| self.count >= most)
    }

    fn wait_for(&self, recheck_in: Option<Duration>) -> Step {
        let delay = match self.max_retry {
            Some(_) => Some(self.retry_delay),
            None => recheck_in.map(|delay| delay.min(self.retry_delay)),
        };
        let recheck = delay.map_or(Timestamp::NEVER, |delay| Timestamp::now() + delay);
        let then = if recheck < self.deadline { Then::AskAgain } else { Then::GiveUp };
        Step::Wait { until: recheck.min(self.deadline), then }
    }

    /// An error that passes is waited out within the caller's patience.
    fn failed(&mut self, error: Error) -> Result<Step> {
        let error = self.cause.explain(error);
        self.doubtful |= !error.is_certain();
        self.out = self.doubtful;
        let delay = match self.max_retry {
            Some(_) => self.retry_delay,
            None => self.backoff.next_delay().min(self.retry_delay),
        };
        let again = Timestamp::now() + delay;
        if !error.is_temporary() || self.is_last() || again >= self.deadline {
            return Err(if self.doubtful { error.unknown() } else { error });
        }
        Ok(Step::Wait { until: again, then: Then::AskAgain })
    }

    fn exhausted(&self, retry_after: Duration) -> Error {
        let error = if self.tries_once() {
            Error::new(ErrorKind::TimedOut, format!("not {} yet, and the timeout is 0", self.what.hope()))
        } else {
            Error::new(
                ErrorKind::RetriesExhausted,
                format!("not {} at {} attempts", self.what.hope(), self.count),
            )
        };
        let error = error.with_key(self.key.as_str());
        if retry_after.is_zero() { error } else { error.with_retry_after(retry_after) }
    }

    fn timed_out(&self) -> Error {
        let waited = humantime::format_duration(self.deadline.since(self.started));
        Error::new(ErrorKind::TimedOut, format!("not {} within {waited}", self.what.hope()))
            .with_key(self.key.as_str())
    }

    fn deleted(&mut self) -> Error {
        self.out = false;
        Error::new(ErrorKind::Conflict, "the name was deleted meanwhile").with_key(self.key.as_str())
    }
}

impl<A: Asking> Drop for Attempt<'_, A> {
    fn drop(&mut self) {
        if self.out {
            let cancel = self.what.cancel(self.doubtful);
            self.locker.send_off(self.key, cancel, self.what.lease() + TOMBSTONE, |_| ());
        }
    }
}

/// Delays that double from 20 ms to 1 s, jittered so that many callers do not return at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    pub(crate) fn next_delay(&mut self) -> Duration {
        let full = Duration::from_millis(20 << self.0.min(6)).min(Duration::from_secs(1));
        self.0 += 1;
        full / 2 + full / 512 * Id::random().jitter(256)
    }
}

async fn in_time(call: Calling<'_>, until: Timestamp) -> Result<Reply> {
    tokio::select! {
        biased;
        answer = call => answer,
        () = background::sleep_until(until) =>
            Err(Error::new(ErrorKind::Unavailable, "the store did not answer in time").unknown()),
    }
}
