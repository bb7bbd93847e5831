//! Holders with names that clients choose.

mod attempt;

use super::request_with_retry;
use crate::locker::Locker;
use attempt::Attempt;
use locker_core::{
    error::Result,
    key::Key,
    primitives::{HoldKind, IdempotencyKey, Reply, rwlock::Mode},
    ranges::{SHORTEST, check_range},
};
use std::time::Duration;

/// A lock whose holder is a name that a client chooses: for servers, whose clients have no guard. Created by
/// [`Locker::keyed_lock`] and [`Locker::keyed_lock_at`].
///
/// It is the same lock as that of [`Locker::lock`]. Nothing is renewed or released automatically.
#[derive(Clone, Debug)]
pub struct KeyedLock(Keyed);

/// A semaphore whose holders are names that clients choose: for servers, whose clients have no guard. Created by
/// [`Locker::keyed_semaphore`].
///
/// It takes permits of the same semaphore as [`Locker::semaphore`] does. Nothing is renewed or released automatically.
#[derive(Clone, Debug)]
pub struct KeyedSemaphore(Keyed);

/// A read/write lock whose holders are names that clients choose: for servers, whose clients have no guard. Created by
/// [`Locker::keyed_rwlock`].
///
/// It is the same lock as that of [`Locker::read_lock`] and [`Locker::write_lock`]. Nothing is renewed or released
/// automatically.
#[derive(Clone, Debug)]
pub struct KeyedRwLock(Keyed);

/// A hold that was acquired under the name of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Rises with every grant. A holder that already held gets its former fence.
    pub fence: u64,
}

impl Locker {
    /// Returns the exclusive lock called `name`, for holders that clients name.
    #[must_use]
    pub fn keyed_lock(&self, name: &str) -> KeyedLock {
        self.keyed_lock_at(Key::named(self.prefix(), "lock", name))
    }

    /// Returns the exclusive lock at `key`, for holders that clients name. [`Key::new`] creates the key of an
    /// attribute from its text.
    #[must_use]
    pub fn keyed_lock_at(&self, key: Key) -> KeyedLock {
        KeyedLock(Keyed { locker: self.clone(), key })
    }

    /// Returns the semaphore called `name`, for holders that clients name.
    #[must_use]
    pub fn keyed_semaphore(&self, name: &str) -> KeyedSemaphore {
        KeyedSemaphore(Keyed { locker: self.clone(), key: Key::named(self.prefix(), "semaphore", name) })
    }

    /// Returns the read/write lock called `name`, for holders that clients name.
    #[must_use]
    pub fn keyed_rwlock(&self, name: &str) -> KeyedRwLock {
        KeyedRwLock(Keyed { locker: self.clone(), key: Key::named(self.prefix(), "rwlock", name) })
    }
}

/// The methods that all keyed holds share. `$kind` builds the requests to renew and release.
macro_rules! keyed_methods {
    ($longest:expr, $kind:expr) => {
        /// Makes the hold of `holder` expire `expires` from now. Returns `false` if there is no such hold.
        ///
        #[doc = $longest]
        ///
        /// # Errors
        /// `Conflict` if the name belongs to another kind of primitive; `Misused`; `Unavailable`: the hold may have
        /// been renewed.
        ///
        /// # Cancel safety
        /// Not cancel safe: when the future is dropped, the hold may have been renewed.
        pub async fn renew(&self, holder: &str, expires: Duration) -> Result<bool> {
            self.0.renew($kind, holder, expires).await
        }

        /// Ends the hold of `holder`. Returns `false` if there is no such hold.
        ///
        /// # Errors
        /// `Conflict` if the name belongs to another kind of primitive; `Unavailable`: the hold may have been released.
        ///
        /// # Cancel safety
        /// Not cancel safe: when the future is dropped, the hold may have been released.
        pub async fn release(&self, holder: &str) -> Result<bool> {
            self.0.release($kind, holder).await
        }
    };
}

/// What `renew` and `release` send for a semaphore, whatever its size.
const PERMITS: HoldKind = HoldKind::Semaphore { size: 1, permits: 1 };

impl KeyedLock {
    /// Takes the lock for the client that calls itself `holder`.
    ///
    /// A holder that already holds gets its former fence, and its expiry stays. `expires` is 1 ms to 10 years.
    /// `timeout` is that of [`LockRequest::timeout`](crate::LockRequest::timeout).
    ///
    /// # Errors
    /// `TimedOut`; `Conflict` if the name is deleted while the caller waits, or belongs to another kind of primitive;
    /// `Misused`; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and releases a hold that was granted to this very call.
    pub fn acquire(
        self,
        holder: &str,
        expires: Duration,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant>> + Send + use<> {
        self.0.acquire(HoldKind::Lock, holder, expires, timeout)
    }

    keyed_methods!("A hold that already lasts longer keeps its end.", HoldKind::Lock);
}

impl KeyedSemaphore {
    /// Takes a permit for the client that calls itself `holder`. The semaphore has `size` permits from now on.
    ///
    /// A holder that already holds gets its former fence; it takes no second permit, and its expiry stays. `expires`
    /// is 1 ms to 10 years; with [`Duration::MAX`] the hold never expires. `timeout` is that of
    /// [`LockRequest::timeout`](crate::LockRequest::timeout).
    ///
    /// # Errors
    /// `TimedOut`; `Conflict` if the name is deleted while the caller waits, or belongs to another kind of primitive;
    /// `Misused`; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and returns a permit that was granted to this very call.
    pub fn acquire(
        self,
        size: u64,
        holder: &str,
        expires: Duration,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant>> + Send + use<> {
        self.0.acquire(HoldKind::Semaphore { size, permits: 1 }, holder, expires, timeout)
    }

    keyed_methods!("The new end may be earlier than the former one.", PERMITS);
}

impl KeyedRwLock {
    /// Takes one side of the lock for the client that calls itself `holder`.
    ///
    /// A holder that already holds gets its former fence, with the side that it holds; its expiry stays. The other
    /// parameters, errors and cancel safety are those of [`KeyedSemaphore::acquire`].
    ///
    /// # Errors
    /// As [`KeyedSemaphore::acquire`].
    pub fn acquire(
        self,
        mode: Mode,
        holder: &str,
        expires: Duration,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant>> + Send + use<> {
        self.0.acquire(HoldKind::ReadWrite(mode), holder, expires, timeout)
    }

    keyed_methods!("The new end may be earlier than the former one.", PERMITS);
}

/// Holds of one key by name. A handle has one kind of hold.
#[derive(Clone, Debug)]
struct Keyed {
    locker: Locker,
    key: Key,
}

impl Keyed {
    fn acquire(
        self,
        kind: HoldKind,
        holder: &str,
        expires: Duration,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant>> + Send + use<> {
        let attempt = Attempt::new(&self.locker, kind, holder, expires);
        async move {
            check_expires(kind, expires)?;
            attempt.acquire(&self.locker, &self.key, timeout).await.map(|fence| Grant { fence })
        }
    }

    async fn renew(&self, kind: HoldKind, holder: &str, expires: Duration) -> Result<bool> {
        check_expires(kind, expires)?;
        let request = kind.renew_once(attempt::name_of(holder), expires, self.once());
        let settled = request_with_retry(&self.locker, &self.key, request).await?;
        Ok(matches!(settled.reply, Reply::Renewed { .. }))
    }

    async fn release(&self, kind: HoldKind, holder: &str) -> Result<bool> {
        let request = kind.release_once(attempt::name_of(holder), self.once());
        let settled = request_with_retry(&self.locker, &self.key, request).await?;
        Ok(settled.reply == Reply::Released || settled.retried)
    }

    /// Returns the idempotency key of a change. An embedded store gets no request twice.
    fn once(&self) -> Option<IdempotencyKey> {
        (!self.locker.is_embedded()).then(|| IdempotencyKey::new(self.locker.new_id()))
    }
}

/// A lock always has an end, as in the layout that other clients of redis share.
fn check_expires(kind: HoldKind, expires: Duration) -> Result<()> {
    if expires == Duration::MAX && kind != HoldKind::Lock {
        return Ok(());
    }
    check_range("expires", expires, SHORTEST)
}
