//! Several locks at once.

use super::LockRequest;
use crate::{
    blocking::block_on,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    lease::{Guard, release_all},
    locker::Locker,
    primitives::HoldKind,
    settings::Settings,
};
use futures_util::future::{join_all, select_all};
use std::time::Duration;

/// A request for several locks: made by [`Locker::lock_all`].
///
/// The locks are taken one after the other in the order of their keys, which is the same for everybody, so that no
/// two callers wait for each other for ever; a lock named twice is taken once.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LockAllRequest {
    requests: Vec<LockRequest>,
    timeout: Duration,
}

macro_rules! for_each {
    ($($(#[$doc:meta])* $name:ident($value:ident: $type:ty);)+) => {
        impl LockAllRequest {
            $($(#[$doc])* pub fn $name(mut self, $value: $type) -> Self {
                self.requests = self.requests.into_iter().map(|request| request.$name($value)).collect();
                self
            })+
        }
    };
}

for_each! {
    /// As [`LockRequest::lease`], for each of them.
    lease(lease: Duration);
    /// As [`LockRequest::renew`], for each of them.
    renew(renew: bool);
    /// As [`LockRequest::max_hold`], for each of them.
    max_hold(max_hold: Duration);
    /// As [`LockRequest::fair`], for each of them.
    fair(fair: bool);
    /// As [`LockRequest::max_retry`], for each of them.
    max_retry(attempts: u32);
    /// As [`LockRequest::retry_delay`], for each of them.
    retry_delay(delay: Duration);
}

impl Locker {
    /// Asks for all these locks, the same ones that [`lock`](Self::lock) asks for: all or nothing, in an order of
    /// their own, so that callers who want the same locks in different orders do not wait for each other for ever.
    pub fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> LockAllRequest {
        let keys = names.into_iter().map(|name| Key::named(self.prefix(), "lock", name.as_ref()));
        self.request_all(HoldKind::Lock, keys.collect())
    }

    pub(crate) fn request_all(&self, kind: HoldKind, keys: Vec<Key>) -> LockAllRequest {
        LockAllRequest::new(self, kind, keys, self.settings())
    }
}

impl LockAllRequest {
    pub(crate) fn new(locker: &Locker, kind: HoldKind, mut keys: Vec<Key>, settings: Settings) -> Self {
        in_order(&mut keys);
        let request = |key| LockRequest::new(locker.clone(), kind, key, settings);
        Self { requests: keys.into_iter().map(request).collect(), timeout: settings.timeout }
    }

    /// How long to wait for all of them together. Default 10 s; zero tries once; [`Duration::MAX`] waits for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Waits until all of them are held.
    ///
    /// # Errors
    /// As [`LockRequest::acquire`]; the error names the lock that could not be had, and nothing is held. `Misused`
    /// also when no lock is named; `Lost` when the lease of one was over while another was waited for. Those that
    /// were had are released before: at a store that has fallen silent the error comes a `command_timeout` after the
    /// timeout.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future releases what is held by then.
    pub async fn acquire(self) -> Result<Guards> {
        if self.requests.is_empty() {
            return Err(Error::new(ErrorKind::Misused, "no lock is named: give at least one"));
        }
        let requests = self.requests.into_iter().map(|request| request.timeout(self.timeout));
        acquire_in_order(requests).await.map(Guards)
    }

    /// Tries once, without waiting. `None`: somebody else holds one of them, and none is held.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `TimedOut`.
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

/// One order for everybody, and every key once.
pub(crate) fn in_order(keys: &mut Vec<Key>) {
    keys.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    keys.dedup();
}

/// Acquires one after the other with the patience for one; all or nothing.
pub(crate) async fn acquire_in_order(requests: impl IntoIterator<Item = LockRequest>) -> Result<Vec<Guard>> {
    let (start, mut guards) = (Timestamp::now(), Vec::new());
    for request in requests {
        let patience = request.patience();
        match request.started(start).acquire().await {
            Ok(guard) => guards.push(guard),
            Err(error) => {
                drop(release_all(guards.into_iter()).await);
                return Err(of_all(error, patience));
            }
        }
    }
    // The first may have been lost while the last was waited for.
    guards.iter().try_for_each(Guard::check)?;
    Ok(guards)
}

/// What one of several waited is what the others had left of the patience for all.
fn of_all(error: Error, patience: Duration) -> Error {
    if error.kind() != ErrorKind::TimedOut || patience.is_zero() {
        return error;
    }
    error.with_message(format!("not acquired within {}", humantime::format_duration(patience)))
}

/// Several locks held together, in the order of their keys; dropping it releases them all.
#[derive(Debug)]
#[must_use = "dropping the guards releases what they hold"]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// The guard of each lock.
    pub fn each(&self) -> &[Guard] {
        &self.0
    }

    /// Whether every lease is surely not over yet.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.iter().all(Guard::is_held)
    }

    /// How much is surely left of the lease that ends first.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// `Ok` while [`is_held`](Self::is_held).
    ///
    /// # Errors
    /// `Lost`, with the key of one that is.
    pub fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(Guard::check)
    }

    /// Waits until one of them is lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) {
        select_all(self.0.iter().map(|guard| Box::pin(guard.lost()))).await;
    }

    /// Ends all of the holds.
    ///
    /// # Errors
    /// The first of the errors of [`Guard::release`]; the others are released all the same.
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped, the releases go on in the background.
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
