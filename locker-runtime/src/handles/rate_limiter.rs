//! Asking a rate limiter.

use crate::{
    Error, ErrorKind, Result,
    blocking::block_on,
    clock::Timestamp,
    config::between,
    id::Id,
    key::Key,
    locker::{Asking, Locker, Patience},
    primitives::{
        Reply, Request, Wait,
        rate_limiter::{self, Quota},
    },
    request::unexpected,
};
use std::time::Duration;

/// Lets so much through and no more: made by [`Locker::rate_limiter`], and to be used again and again.
///
/// Every call is told its turn in one step and sleeps until then; nobody polls. Turns come in the order of asking.
/// A caller that gives up before its turn gives its tokens back; while more than 64 others wait, to the first of them.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    locker: Locker,
    key: Key,
    quota: Quota,
    tokens: u64,
    timeout: Duration,
    holds_out: bool,
    /// Whether quota, tokens and timeout are within their limits.
    is_valid: bool,
}

/// Being let through. Of a call that had to wait this is how it stands when its turn comes, as far as the store knew
/// when it told the turn: who asked after that is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// How many tokens are left for others.
    pub remaining: u64,
    /// How long it takes until all of them are free again.
    pub reset_after: Duration,
}

impl RateLimiter {
    pub(crate) fn new(locker: Locker, key: Key, quota: Quota, timeout: Duration) -> Self {
        Self { locker, key, quota, tokens: 1, timeout, holds_out: false, is_valid: false }.checked()
    }

    fn checked(mut self) -> Self {
        self.is_valid = self.check().is_ok();
        self
    }

    fn check(&self) -> Result<()> {
        self.quota.check(self.tokens)?;
        if self.timeout == Duration::MAX { Ok(()) } else { between("timeout", self.timeout, Duration::ZERO) }
    }

    /// The longest wait for the turn: what lies further ahead is refused at once. Default: the locker's (10 s);
    /// zero never waits; [`Duration::MAX`] waits for ever.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self.checked()
    }

    /// Whether to wait until the timeout ends for a turn that lies beyond it: other settings, or somebody who gives
    /// up, may bring it forward. Default: refused at once.
    #[must_use]
    pub fn hold_out(mut self, hold_out: bool) -> Self {
        self.holds_out = hold_out;
        self
    }

    /// How many tokens to take, all or nothing. Default 1, at most the quota's size.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self.checked()
    }

    /// The key, prefix included.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// `Limited` when the turn would not come within the timeout: at once, unless it is to [`hold_out`](Self::hold_out).
    /// [`Error::retry_after`] says when to come back (nothing when the size is 0). `Misused` when the quota, the tokens
    /// or the timeout are out of range; `Conflict` when the name is deleted meanwhile or is of another kind;
    /// `Unavailable`: tokens may have been taken. Where an answer gets lost on the way from a server, they may be taken
    /// twice: the safe side.
    ///
    /// # Cancel safety
    /// Cancel safe: tokens whose turn has not come are given back.
    pub async fn acquire(&self) -> Result<Admission> {
        if !self.is_valid {
            self.check()?;
        }
        match self.at_once() {
            Some(answer) => answer,
            // Boxed: few admissions of the embedded store wait, and moving room for it costs as much as asking.
            None => Box::pin(self.wait()).await,
        }
    }

    async fn wait(&self) -> Result<Admission> {
        let (id, deadline) = (self.locker.new_id(), Timestamp::now() + self.timeout);
        let what = Taking { id, deadline, limiter: self };
        let answer = self.locker.ask(&self.key, &what, Patience::up_to(self.timeout)).await;
        match answer {
            Ok(answer) => self.admission(&answer.reply),
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(self.limited(error.retry_after())),
            Err(error) => Err(error),
        }
    }

    /// Takes tokens that are free now. `None`: there are not enough.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `Limited`.
    ///
    /// # Cancel safety
    /// When the future is dropped tokens may have been taken.
    pub async fn try_acquire(&self) -> Result<Option<Admission>> {
        let now = self.clone().timeout(Duration::ZERO);
        match now.acquire().await {
            Ok(admission) => Ok(Some(admission)),
            Err(error) if error.kind() == ErrorKind::Limited => Ok(None),
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

    /// In the embedded store most admissions need no waiting: they are asked for without a mailbox and without an id,
    /// because nobody could ask for them again.
    fn at_once(&self) -> Option<Result<Admission>> {
        let Self { tokens, quota, timeout, .. } = *self;
        let id = Id::from(0);
        let take = rate_limiter::Request::Take { id, tokens, quota, patience: Duration::ZERO, wait: None };
        match self.locker.at_once(&self.key, &Request::RateLimiter(take))? {
            Ok(Reply::Limited { .. }) if !timeout.is_zero() => None,
            Ok(reply) => Some(self.admission(&reply)),
            Err(error) => Some(Err(error)),
        }
    }

    #[inline]
    fn admission(&self, reply: &Reply) -> Result<Admission> {
        match *reply {
            Reply::Admitted { remaining, reset_after, .. } => Ok(Admission { remaining, reset_after }),
            Reply::Limited { retry_after, .. } => Err(self.limited(retry_after)),
            ref reply => Err(unexpected(reply).with_key(self.key.as_str())),
        }
    }

    fn limited(&self, retry_after: Option<Duration>) -> Error {
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
    limiter: &'a RateLimiter,
}

impl Asking for Taking<'_> {
    fn id(&self) -> Id {
        self.id
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        let RateLimiter { tokens, quota, timeout, holds_out, .. } = *self.limiter;
        let left = self.deadline.since(Timestamp::now());
        let is_patient = timeout == Duration::MAX || (holds_out && wait.is_some());
        let patience = if is_patient { Duration::MAX } else { left };
        Request::RateLimiter(rate_limiter::Request::Take { id: self.id, tokens, quota, patience, wait })
    }

    fn cancel(&self, tombstone: bool) -> Request {
        Request::RateLimiter(rate_limiter::Request::Cancel { id: self.id, tombstone })
    }

    fn holds_out(&self) -> bool {
        self.limiter.holds_out
    }

    fn hope(&self) -> &'static str {
        "admitted"
    }
}
