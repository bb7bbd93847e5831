//! Holders with names that clients choose.

mod attempt;
#[cfg(feature = "idempotent")]
pub(crate) mod run;

use super::request_with_retry;
use crate::locker::{Counted, Locker, Subject};
use attempt::{Attempt, name_of};
use locker_core::{
    error::Result,
    key::Key,
    primitives::{HoldKind, IdempotencyKey, Reply, rwlock::Mode},
    ranges::{SHORTEST, check_range},
};
use std::time::Duration;

/// A lock, a read/write lock or a semaphore whose holders are names that clients choose: for servers, whose clients
/// have no guard. Created by [`Locker::keyed_lock`], [`Locker::keyed_lock_at`], [`Locker::keyed_rwlock`] and
/// [`Locker::keyed_semaphore`].
///
/// It is the same one as that of [`Locker::lock`], [`Locker::read_lock`], [`Locker::write_lock`] or
/// [`Locker::semaphore`]. Nothing is renewed or released automatically.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// use std::time::Duration;
/// let lock = Locker::memory().keyed_lock("invoice 7");
/// let (minute, timeout) = (Duration::from_secs(60), Duration::from_secs(10));
/// let grant = lock.clone().acquire("client 1", minute, timeout).await?;
/// println!("fence {}", grant.fence);
/// assert!(lock.renew("client 1", minute).await?);
/// assert!(lock.release("client 1").await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct KeyedHold {
    locker: Locker,
    key: Key,
    kind: HoldKind,
}

/// A hold that was acquired under the name of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token, which rises with every grant. A holder that already held gets its former fence.
    pub fence: u64,
}

impl Locker {
    /// Returns the exclusive lock called `name`, for holders that clients name.
    #[must_use]
    pub fn keyed_lock(&self, name: &str) -> KeyedHold {
        self.keyed(HoldKind::Lock, Key::named(self.prefix(), "lock", name))
    }

    /// Returns the exclusive lock at `key`, for holders that clients name. [`Key::new`] creates the key of an
    /// attribute from its text.
    #[must_use]
    pub fn keyed_lock_at(&self, key: Key) -> KeyedHold {
        self.keyed(HoldKind::Lock, key)
    }

    /// Returns one permit of the semaphore called `name`, for holders that clients name. Each
    /// [`acquire`](KeyedHold::acquire) sets the size of the semaphore; renewals and releases do not.
    #[must_use]
    pub fn keyed_semaphore(&self, name: &str, size: u64) -> KeyedHold {
        let kind = HoldKind::Semaphore { size, permits: 1 };
        self.keyed(kind, Key::named(self.prefix(), "semaphore", name))
    }

    /// Returns one side of the read/write lock called `name`, for holders that clients name. Renewals and releases
    /// apply to either side.
    #[must_use]
    pub fn keyed_rwlock(&self, name: &str, mode: Mode) -> KeyedHold {
        self.keyed(HoldKind::ReadWrite(mode), Key::named(self.prefix(), "rwlock", name))
    }

    fn keyed(&self, kind: HoldKind, key: Key) -> KeyedHold {
        KeyedHold { locker: self.clone(), key, kind }
    }
}

impl KeyedHold {
    /// Acquires for the client that calls itself `holder`.
    ///
    /// A holder that already holds gets its former fence, with the side that it holds; it takes no second permit, and
    /// its expiry stays. `expires` is 1 ms to 10 years. With [`Duration::MAX`] the hold never expires, which an
    /// exclusive lock refuses. `timeout` is that of [`LockRequest::timeout`](crate::LockRequest::timeout).
    ///
    /// # Errors
    /// `TimedOut`; `Conflict` if the name is deleted during the wait or belongs to another kind of primitive; `Misused`
    /// if `expires` or `timeout` is out of range; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and releases a hold that was granted to this very call.
    pub fn acquire(
        self,
        holder: &str,
        expires: Duration,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant>> + Send + use<> {
        let (id, name) = (self.locker.new_id(), name_of(holder));
        async move {
            let attempt = Attempt::new(&self, id, name, expires);
            attempt.call.check(self.check_expires(expires))?;
            attempt.acquire(timeout).await.map(|fence| Grant { fence })
        }
    }

    /// Makes the hold of `holder` expire `expires` from now. Returns `false` if there is no such hold. The new end may
    /// be earlier than the former one, except that an exclusive lock that already lasts longer keeps its end.
    ///
    /// # Errors
    /// `Conflict` if the name belongs to another kind of primitive; `Misused` if `expires` is out of range;
    /// `Unavailable`: the hold may have been renewed.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, the hold may have been renewed.
    pub async fn renew(&self, holder: &str, expires: Duration) -> Result<bool> {
        self.check_expires(expires)?;
        let request = self.kind.renew_once(name_of(holder), expires, self.once());
        let settled = request_with_retry(&self.locker, &self.key, request).await?;
        Ok(matches!(settled.reply, Reply::Renewed { .. }))
    }

    /// Ends the hold of `holder`. Returns `false` if there is no such hold.
    ///
    /// # Errors
    /// `Conflict` if the name belongs to another kind of primitive; `Unavailable`: the hold may have been released.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, the hold may have been released.
    pub async fn release(&self, holder: &str) -> Result<bool> {
        let request = self.kind.release_once(name_of(holder), self.once());
        let settled = request_with_retry(&self.locker, &self.key, request).await?;
        Ok(settled.reply == Reply::Released || settled.retried)
    }

    /// Returns the idempotency key of a change. An embedded store gets no request twice.
    fn once(&self) -> Option<IdempotencyKey> {
        (!self.locker.is_embedded()).then(|| IdempotencyKey::new(self.locker.new_id()))
    }

    /// A lock always has an end, as in the layout that other clients of redis share.
    fn check_expires(&self, expires: Duration) -> Result<()> {
        if expires == Duration::MAX && self.kind != HoldKind::Lock {
            return Ok(());
        }
        check_range("expires", expires, SHORTEST)
    }
}

impl Counted for KeyedHold {
    fn subject(&self) -> Subject<'_> {
        let Self { locker, key, kind } = self;
        Subject { locker, key, kind: (*kind).into(), function: None }
    }
}
