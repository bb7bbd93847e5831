//! The rate limiter.

use crate::{
    locker::{Acquired, Call, Counted, Kind, Limited, Locker, Refusal, Subject, WaitOp},
    settings::Patience,
};
use locker_core::{
    blocking::block_on,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    primitives::{
        Reply, Request, Wait,
        rate_limiter::{self, Quota},
    },
    ranges::check_range,
};
use std::time::Duration;

/// A rate limiter. Created by [`Locker::rate_limiter`]. Cheap to clone; reuse it across calls.
///
/// Each call gets a reservation in one step and sleeps until it is due; no caller polls. Reservations are made in the
/// order of the calls. A caller that gives up returns its tokens; if more than 64 others wait, the first of them gets
/// the tokens.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::{ErrorKind, Locker, Quota};
/// use std::time::Duration;
/// let locker = Locker::memory();
/// let quota = Quota::gcra(100, Duration::from_secs(1)).burst(10);
/// let mail = locker.rate_limiter("mail", quota).timeout(Duration::ZERO);
/// match mail.acquire().await {
///     Ok(admission) => println!("{} left", admission.remaining),
///     Err(error) if error.kind() == ErrorKind::Limited => println!("again in {:?}", error.retry_after()),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RateLimiter {
    locker: Locker,
    key: Key,
    quota: Quota,
    tokens: u64,
    timeout: Duration,
    waits_past_timeout: bool,
    caches_refusals: bool,
    /// The annotated function, which errors name.
    function: Option<&'static str>,
    /// Whether quota, tokens and timeout are within their limits.
    is_valid: bool,
}

/// An admitted call. If it had to wait, the values are a forecast, made when its reservation was assigned: later
/// callers are not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// How many tokens are left.
    pub remaining: u64,
    /// How long until all tokens are available again.
    pub reset_after: Duration,
}

/// The result of a call that has not failed.
type Outcome = std::result::Result<Admission, Limited>;

impl Locker {
    /// Returns the rate limiter called `name`. The most recent `quota` applies to all callers.
    #[must_use]
    pub fn rate_limiter(&self, name: &str, quota: Quota) -> RateLimiter {
        self.limiter(Key::named(self.prefix(), "rate", name), quota)
    }

    pub(crate) fn limiter(&self, key: Key, quota: Quota) -> RateLimiter {
        RateLimiter::new(self.clone(), key, quota, self.settings().timeout)
    }
}

impl RateLimiter {
    #[inline]
    pub(crate) fn new(locker: Locker, key: Key, quota: Quota, timeout: Duration) -> Self {
        // The locker's timeout was checked when it was built.
        let (tokens, is_valid) = (1, quota.check(1).is_ok());
        Self {
            locker,
            key,
            quota,
            tokens,
            timeout,
            waits_past_timeout: false,
            caches_refusals: true,
            function: None,
            is_valid,
        }
    }

    pub(crate) fn function(mut self, path: &'static str) -> Self {
        self.function = Some(path);
        self
    }

    fn checked(mut self) -> Self {
        self.is_valid = self.check(self.timeout).is_ok();
        self
    }

    fn check(&self, timeout: Duration) -> Result<()> {
        self.quota.check(self.tokens)?;
        if timeout == Duration::MAX { Ok(()) } else { check_range("timeout", timeout, Duration::ZERO) }
    }

    /// Sets the longest wait. A call whose reservation would be due later fails at once. Default: the locker's timeout,
    /// 10 s. Zero never waits; the longest is 10 years, [`Duration::MAX`] waits indefinitely.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self.checked()
    }

    /// Sets whether to keep waiting until the timeout for a reservation that is due later: a settings change or a
    /// cancellation may bring it forward. Default `false`: such a call fails at once.
    #[must_use]
    pub fn wait_past_timeout(mut self, wait_past_timeout: bool) -> Self {
        self.waits_past_timeout = wait_past_timeout;
        self
    }

    /// Sets whether this process refuses calls without asking the store after the store has just refused one. Default
    /// `true`. It has no effect on the embedded store.
    ///
    /// A cached refusal applies to calls with the same name and quota, for at least as many tokens, that would not
    /// wait. It applies until the tokens are available, for at most 50 ms after its request was sent, and only if no
    /// caller was waiting that could return tokens. So a limit that another process raises or deletes may refuse here
    /// for 50 ms more.
    #[must_use]
    pub fn cache_refusals(mut self, cache_refusals: bool) -> Self {
        self.caches_refusals = cache_refusals;
        self
    }

    /// Sets how many tokens to take, all or nothing. Default 1, at least 1, at most the quota's size or burst.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self.checked()
    }

    /// Returns the key, with its prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Takes tokens, and waits until they are available.
    ///
    /// # Errors
    /// `Limited` if the tokens are not available within the timeout: at once, unless
    /// [`wait_past_timeout`](Self::wait_past_timeout) is set. [`Error::retry_after`] says when to come back (`None` if
    /// the size is 0). `Misused` if the quota, the tokens or the timeout are out of range; `Conflict` if the name is
    /// deleted during the wait or belongs to another kind of primitive; `Unavailable`: tokens may have been taken. If a
    /// reply of a server is lost, tokens may be taken twice.
    ///
    /// # Cancel safety
    /// Cancel safe: tokens that are not due yet are returned.
    pub async fn acquire(&self) -> Result<Admission> {
        let taken = self.take(self.timeout).await;
        let admitted = taken.and_then(|outcome| outcome.map_err(|limited| self.limited(limited)));
        admitted.map_err(|error| error.of_function(self.function))
    }

    /// Takes tokens that are available now. Returns `None` if there are not enough.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `Limited`.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, tokens may have been taken.
    pub async fn try_acquire(&self) -> Result<Option<Admission>> {
        Ok(self.take(Duration::ZERO).await?.ok())
    }

    #[inline]
    async fn take(&self, timeout: Duration) -> Result<Outcome> {
        if !self.is_valid {
            self.check(timeout).inspect_err(|error| Call::count(self, Err(error.kind())))?;
        }
        match self.call_inline(timeout) {
            Some(outcome) => {
                Call::count(self, how(&outcome));
                outcome
            }
            // Boxed: few calls on the embedded store wait, and a larger future costs as much as the call.
            None => Box::pin(self.wait(timeout)).await,
        }
    }

    async fn wait(&self, timeout: Duration) -> Result<Outcome> {
        let (id, deadline) = (self.locker.new_id(), Timestamp::now() + timeout);
        let what = Taking { id, deadline, timeout, limiter: self, call: Call::start(self) };
        let outcome = match self.locker.ask(&self.key, &what, Patience::up_to(timeout)).await {
            Ok(answer) => {
                self.keep(&answer);
                self.outcome(&answer.reply)
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                Ok(Err(Limited { retry_after: error.retry_after() }))
            }
            Err(error) => Err(error),
        };
        what.call.end(how(&outcome).map(|()| None));
        outcome
    }

    /// [`acquire`](Self::acquire) for callers that are not async: blocks this thread.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_blocking(&self) -> Result<Admission> {
        block_on(self.acquire())
    }

    /// [`try_acquire`](Self::try_acquire) for callers that are not async.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_blocking(&self) -> Result<Option<Admission>> {
        block_on(self.try_acquire())
    }

    /// Returns the outcome of a call that need not wait. The embedded store is asked without a mailbox and an id,
    /// because its reply cannot be lost. Returns `None` if the request must be sent to a server, or the caller has to
    /// wait.
    #[inline]
    fn call_inline(&self, timeout: Duration) -> Option<Result<Outcome>> {
        let Self { tokens, quota, .. } = *self;
        let id = Id::from(0);
        let take = rate_limiter::Request::Take { id, tokens, quota, patience: Duration::ZERO, wait: None };
        match self.locker.call_inline(&self.key, &Request::RateLimiter(take), None) {
            None => self.refused_just_now(timeout).map(|limited| Ok(Err(limited))),
            Some(Ok(Reply::Limited { .. })) if !timeout.is_zero() => None,
            Some(Ok(reply)) => Some(self.outcome(&reply)),
            Some(Err(error)) => Some(Err(error)),
        }
    }

    fn refused_just_now(&self, timeout: Duration) -> Option<Limited> {
        let waits = self.waits_past_timeout && !timeout.is_zero();
        if waits || !self.caches_refusals {
            return None;
        }
        self.locker.refusals().find(&self.key, self.quota, self.tokens, timeout)
    }

    /// Keeps a refusal for later calls. A caller that has waited may have been refused by another quota.
    fn keep(&self, answer: &Acquired) {
        let Self { tokens, quota, .. } = *self;
        if let Reply::Limited { retry_after, waiting: 0, .. } = answer.reply
            && self.caches_refusals
            && self.locker.store().waiter_ttl().is_some()
            && answer.waited.is_none()
        {
            let (sent, received, limited) = (answer.sent, Timestamp::now(), Limited { retry_after });
            self.locker.refusals().keep(&self.key, Refusal { quota, tokens, sent, received, limited });
        }
    }

    #[inline]
    fn outcome(&self, reply: &Reply) -> Result<Outcome> {
        match *reply {
            Reply::Admitted { remaining, reset_after, .. } => Ok(Ok(Admission { remaining, reset_after })),
            Reply::Limited { retry_after, .. } => Ok(Err(Limited { retry_after })),
            ref reply => Err(reply.clone().into_error().with_key(self.key.as_str())),
        }
    }

    #[cold]
    fn limited(&self, Limited { retry_after }: Limited) -> Error {
        let error = match retry_after {
            Some(after) => Error::new(
                ErrorKind::Limited,
                format!("the next tokens are available in {}", humantime::format_duration(after)),
            )
            .with_retry_after(after),
            None => Error::new(ErrorKind::Limited, "the size is 0: no tokens until it is raised"),
        };
        error.with_key(self.key.as_str())
    }
}

/// Returns how a call ended.
#[inline]
fn how(outcome: &Result<Outcome>) -> Result<(), ErrorKind> {
    match outcome {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(ErrorKind::Limited),
        Err(error) => Err(error.kind()),
    }
}

impl Counted for RateLimiter {
    fn subject(&self) -> Subject<'_> {
        let Self { locker, key, function, .. } = self;
        Subject { locker, key, kind: Kind::Rate, function: *function }
    }
}

struct Taking<'a> {
    id: Id,
    deadline: Timestamp,
    timeout: Duration,
    limiter: &'a RateLimiter,
    call: Call<'a>,
}

impl WaitOp for Taking<'_> {
    fn id(&self) -> Id {
        self.id
    }

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        let RateLimiter { tokens, quota, waits_past_timeout, .. } = *self.limiter;
        let left = self.deadline.since(Timestamp::now());
        let is_patient = self.timeout == Duration::MAX || (waits_past_timeout && wait.is_some());
        let patience = if is_patient { Duration::MAX } else { left };
        Request::RateLimiter(rate_limiter::Request::Take { id: self.id, tokens, quota, patience, wait })
    }

    fn cancel(&self, tombstone: bool) -> Request {
        Request::RateLimiter(rate_limiter::Request::Cancel { id: self.id, tombstone })
    }

    fn waits_past_timeout(&self) -> bool {
        self.limiter.waits_past_timeout
    }

    fn verb(&self) -> &'static str {
        "admitted"
    }
}
