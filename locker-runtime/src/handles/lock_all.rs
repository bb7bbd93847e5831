//! Several locks at once.

use super::{LockRequest, lock::Origin};
use crate::{
    lease::{Guard, Hold, release_all},
    locker::Locker,
    settings::{Settings, hold_setters, margin_setters, waiting_setters},
};
use futures_util::future::{join_all, select_all};
use locker_core::{
    blocking::block_on,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    primitives::HoldKind,
};
use std::{sync::Arc, time::Duration};

/// A request for several locks. Created by [`Locker::lock_all`].
///
/// The locks are taken one after the other, in the order of their keys. That order is the same for all callers, so that
/// no two callers wait for each other. A lock that is named twice is taken once.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// let locker = Locker::memory();
/// let guards = locker.lock_all(["account 7", "account 3"]).acquire().await?;
/// assert_eq!(guards.each()[0].key(), "lock:account 3");
/// guards.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LockAllRequest {
    locker: Locker,
    kind: HoldKind,
    keys: Vec<Key>,
    settings: Settings,
    origin: Origin,
    around: Vec<Arc<Hold>>,
}

impl Locker {
    /// Returns a request for all these locks, which are those of [`lock`](Self::lock): all or none.
    #[track_caller]
    pub fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> LockAllRequest {
        let keys = names.into_iter().map(|name| Key::named(self.prefix(), "lock", name.as_ref()));
        let mut keys = keys.collect();
        in_order(&mut keys);
        let (locker, settings, origin) = (self.clone(), self.settings(), Origin::caller());
        LockAllRequest { locker, kind: HoldKind::Lock, keys, settings, origin, around: Vec::new() }
    }
}

impl LockAllRequest {
    waiting_setters!();

    margin_setters!();

    hold_setters!();

    /// Says that the caller releases `guard` after this call only, as [`LockRequest::holding`] does.
    pub fn holding(mut self, guard: &Guard) -> Self {
        self.around.extend(guard.held().cloned());
        self
    }

    /// Acquires all locks, waiting if necessary.
    ///
    /// # Errors
    /// Those of [`LockRequest::acquire`]: the error names the lock that was not granted, and none is held. Also
    /// `Misused` if no lock is named, and `Lost` if a lease was over before the last lock was granted. Granted locks
    /// are released first: if the store is silent, the error comes a `command_timeout` after the timeout.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future releases the locks that are held by then.
    pub async fn acquire(self) -> Result<Guards> {
        let Self { locker, kind, keys, settings, origin, around } = self;
        if keys.is_empty() {
            return Err(Error::new(ErrorKind::Misused, "no lock is named: give at least one"));
        }
        let request =
            |key| LockRequest::new(locker.clone(), kind, key, settings).origin(origin).holding_all(&around);
        acquire_in_order(keys.into_iter().map(request)).await.map(Guards)
    }

    /// Tries once, without waiting. Returns `None` if one of the locks is not granted at once; then none is held.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `TimedOut` or `RetriesExhausted`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<Guards>> {
        match self.timeout(Duration::ZERO).acquire().await {
            Ok(guards) => Ok(Some(guards)),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// [`acquire`](Self::acquire) for callers that are not async: blocks this thread.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_blocking(self) -> Result<Guards> {
        block_on(self.acquire())
    }

    /// [`try_acquire`](Self::try_acquire) for callers that are not async.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_blocking(self) -> Result<Option<Guards>> {
        block_on(self.try_acquire())
    }
}

/// Sorts the keys, so that all callers take them in the same order, and removes duplicates.
pub(crate) fn in_order(keys: &mut Vec<Key>) {
    keys.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    keys.dedup();
}

/// Acquires all in order, within one timeout, or none.
pub(crate) async fn acquire_in_order(requests: impl IntoIterator<Item = LockRequest>) -> Result<Vec<Guard>> {
    let (start, mut guards) = (Timestamp::now(), Vec::<Guard>::new());
    for request in requests {
        let timeout = request.settings().timeout;
        let held = guards.iter().filter_map(Guard::held);
        match request.holding_all(held).started(start).acquire().await {
            Ok(mut guard) => {
                guard.set_begun(false);
                guards.push(guard);
            }
            Err(error) => {
                drop(release_all(guards.into_iter()).await);
                return Err(of_all(error, timeout));
            }
        }
    }
    // The first may have been lost while the last was being acquired.
    guards.iter().try_for_each(Guard::check)?;
    for guard in &mut guards {
        guard.set_begun(true);
    }
    Ok(guards)
}

/// Makes the error of one lock name the timeout for all locks.
fn of_all(error: Error, timeout: Duration) -> Error {
    if error.kind() != ErrorKind::TimedOut || timeout.is_zero() {
        return error;
    }
    error.with_message(format!("not acquired within {}", humantime::format_duration(timeout)))
}

/// The guards of several locks, in the order of their keys. Dropping them releases all locks.
#[derive(Debug)]
#[must_use = "dropping the guards releases what they hold"]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// Returns the guard of each lock.
    pub fn each(&self) -> &[Guard] {
        &self.0
    }

    /// Returns whether some of every lease is left by the local clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.iter().all(Guard::is_held)
    }

    /// Returns how much of the lease that ends first is left by the local clock.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Returns `Ok` while [`is_held`](Self::is_held).
    ///
    /// # Errors
    /// `Lost`, with the key of a lost lock.
    pub fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(Guard::check)
    }

    /// Waits until one of the locks is lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) {
        select_all(self.0.iter().map(|guard| Box::pin(guard.lost()))).await;
    }

    /// Ends all of the holds.
    ///
    /// # Errors
    /// The first error of [`Guard::release`]. All locks are released.
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped, the releases continue in the background.
    pub async fn release(self) -> Result<()> {
        join_all(self.0.into_iter().map(Guard::release)).await.into_iter().collect()
    }

    /// [`release`](Self::release) for callers that are not async: blocks this thread.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn release_blocking(self) -> Result<()> {
        block_on(self.release())
    }
}
