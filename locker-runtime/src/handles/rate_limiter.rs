//! The rate limiter.

use crate::{
    blocking::block_on,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    locker::{Acquired, Limited, Locker, Refusal, WaitOp},
    primitives::{
        Reply, Request, Wait,
        rate_limiter::{self, Quota},
    },
    ranges::check_range,
    settings::Patience,
};
use std::time::Duration;

/// A rate limiter: lets `n` tokens through per interval and no more. Made by [`Locker::rate_limiter`], for any number
/// of calls.
///
/// Each call is given its turn in one step and sleeps until then; nobody polls. Turns come in the order of asking.
/// A caller that gives up before its turn gives its tokens back. If more than 64 others wait, they go to the first of
/// those.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    locker: Locker,
    key: Key,
    quota: Quota,
    tokens: u64,
    timeout: Duration,
    waits_past_timeout: bool,
    caches_refusals: bool,
    /// Whether quota, tokens and timeout are within their limits.
    is_valid: bool,
}

/// A caller that was let through. If the caller had to wait, the numbers are those of its turn, as the store knew them
/// when it gave the turn: later callers are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// How many tokens are left for others.
    pub remaining: u64,
    /// How long it takes until all of them are free again.
    pub reset_after: Duration,
}

/// The end of a call that has not failed.
type Outcome = std::result::Result<Admission, Limited>;

impl Locker {
    /// The rate limiter called `name`, with `quota` from now on, for everybody.
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
            is_valid,
        }
    }

    fn checked(mut self) -> Self {
        self.is_valid = self.check(self.timeout).is_ok();
        self
    }

    fn check(&self, timeout: Duration) -> Result<()> {
        self.quota.check(self.tokens)?;
        if timeout == Duration::MAX { Ok(()) } else { check_range("timeout", timeout, Duration::ZERO) }
    }

    /// Sets the longest wait for the turn: a turn that lies further ahead is refused at once. Default: the locker's
    /// (10 s). Zero never waits; [`Duration::MAX`] waits indefinitely.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self.checked()
    }

    /// Sets whether to wait until the timeout ends for a turn that lies beyond it: other settings, or a caller that
    /// gives up, may bring it forward. Default `false`: such a call is refused at once.
    #[must_use]
    pub fn wait_past_timeout(mut self, wait_past_timeout: bool) -> Self {
        self.waits_past_timeout = wait_past_timeout;
        self
    }

    /// Sets whether this process refuses calls without asking the store after the store has just refused one. Default
    /// `true`. It has no effect on the embedded store.
    ///
    /// A refusal counts again for calls on the same name with the same quota, for at least as many tokens, that would
    /// not wait for their turn. It counts until the tokens are there, for at most 50 ms after its request was sent, and
    /// only if nobody was in line that could give tokens back. So a limit that is raised or deleted elsewhere may go on
    /// refusing here for 50 ms.
    #[must_use]
    pub fn cache_refusals(mut self, cache_refusals: bool) -> Self {
        self.caches_refusals = cache_refusals;
        self
    }

    /// Sets how many tokens to take, all or nothing. Default 1, at most the quota's size.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self.checked()
    }

    /// Returns the key, prefix included.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// `Limited` if the turn would not come within the timeout: at once, unless [`wait_past_timeout`](Self::wait_past_timeout) is set.
    /// [`Error::retry_after`] says when to come back (`None` if the size is 0). `Misused` if the quota, the tokens
    /// or the timeout are out of range; `Conflict` if the name is deleted during the wait or is of another kind;
    /// `Unavailable`: tokens may have been taken. If a reply of a server is lost, they may be taken twice: the safe
    /// side.
    ///
    /// # Cancel safety
    /// Cancel safe: tokens whose turn has not come are given back.
    pub async fn acquire(&self) -> Result<Admission> {
        self.take(self.timeout).await?.map_err(|limited| self.limited(limited))
    }

    /// Takes tokens that are free now. Returns `None` if there are not enough.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `Limited`.
    ///
    /// # Cancel safety
    /// Tokens may have been taken if the future is dropped.
    pub async fn try_acquire(&self) -> Result<Option<Admission>> {
        Ok(self.take(Duration::ZERO).await?.ok())
    }

    #[inline]
    async fn take(&self, timeout: Duration) -> Result<Outcome> {
        if !self.is_valid {
            self.check(timeout)?;
        }
        match self.call_inline(timeout) {
            Some(outcome) => outcome,
            // Boxed: few admissions of the embedded store wait, and moving room for it costs as much as asking.
            None => Box::pin(self.wait(timeout)).await,
        }
    }

    async fn wait(&self, timeout: Duration) -> Result<Outcome> {
        let (id, deadline) = (self.locker.new_id(), Timestamp::now() + timeout);
        let what = Taking { id, deadline, timeout, limiter: self };
        match self.locker.ask(&self.key, &what, Patience::up_to(timeout)).await {
            Ok(answer) => {
                self.keep(&answer);
                self.outcome(&answer.reply)
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                Ok(Err(Limited { retry_after: error.retry_after() }))
            }
            Err(error) => Err(error),
        }
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

    /// The outcome of a call that need not wait. The embedded store is asked without a mailbox and without an id, because
    /// nobody could ask it again. `None`: another store has to be asked, or the turn waited for.
    #[inline]
    fn call_inline(&self, timeout: Duration) -> Option<Result<Outcome>> {
        let Self { tokens, quota, .. } = *self;
        let id = Id::from(0);
        let take = rate_limiter::Request::Take { id, tokens, quota, patience: Duration::ZERO, wait: None };
        match self.locker.call_inline(&self.key, &Request::RateLimiter(take)) {
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
                format!("the next turn is in {}", humantime::format_duration(after)),
            )
            .with_retry_after(after),
            None => Error::new(ErrorKind::Limited, "no turn until the size is raised"),
        };
        error.with_key(self.key.as_str())
    }
}

struct Taking<'a> {
    id: Id,
    deadline: Timestamp,
    timeout: Duration,
    limiter: &'a RateLimiter,
}

impl WaitOp for Taking<'_> {
    fn id(&self) -> Id {
        self.id
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
