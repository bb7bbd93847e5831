//! Several locks for one call (`each`). They are acquired in one order everywhere, and either all or none are held.

use super::scope::{AsyncScope, BlockingScope};
use crate::{
    handles::{
        LockRequest,
        lock_all::{acquire_in_order, in_order},
    },
    lease::Guard,
    locker::Locker,
};
use locker_core::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
    key::{FunctionDigest, Key, KeyBuilder, KeyPart},
};
use std::fmt;

/// The keys of the locks, one per argument.
pub struct Each<'a> {
    locker: &'a Locker,
    function: &'a FunctionDigest,
    keys: Vec<Key>,
}

/// The requests for the locks, in the order of their keys.
#[derive(Debug)]
pub struct Requests {
    requests: Vec<LockRequest>,
    on_expiry: bool,
}

/// Returns an empty list of keys; the arguments follow.
#[must_use]
pub fn each_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> Each<'a> {
    Each { locker, function, keys: Vec::new() }
}

impl Each<'_> {
    /// Adds the key of a lock on this argument alone.
    pub fn part<T: KeyPart + ?Sized>(&mut self, part: &T) {
        let mut key: KeyBuilder<'_> = super::lock_key(self.locker, self.function);
        key.part(part);
        self.keys.push(key.finish());
    }
}

impl fmt::Debug for Each<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Each").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Creates the requests: sorted by key, so that no two callers wait for each other, and without duplicate keys.
pub fn each(each: Each<'_>, request: impl FnMut(Key) -> LockRequest) -> Requests {
    let mut keys = each.keys;
    in_order(&mut keys);
    Requests { requests: keys.into_iter().map(request).collect(), on_expiry: false }
}

impl Requests {
    /// Keeps all acquired locks until their leases end.
    #[must_use]
    pub fn release_on_expiry(self) -> Self {
        Self { on_expiry: true, ..self }
    }

    fn all_held(on_expiry: bool, mut guards: Vec<Guard>) -> Result<AsyncScope> {
        if on_expiry {
            guards.iter_mut().for_each(Guard::release_on_expiry);
        }
        AsyncScope::of(guards)
            .ok_or_else(|| Error::new(ErrorKind::Misused, "`each` has no arguments: give at least one"))
    }
}

/// Waits for all the locks, with the timeout of one.
///
/// # Errors
/// Those of `acquire`; none of the locks is held then.
pub async fn acquire_each(Requests { requests, on_expiry }: Requests) -> Result<AsyncScope> {
    Requests::all_held(on_expiry, acquire_in_order(requests).await?)
}

/// Waits for all the locks and blocks the thread.
///
/// # Errors
/// Those of `acquire_blocking`; none of the locks is held then.
pub fn acquire_each_blocking(requests: Requests) -> Result<BlockingScope> {
    block_on(acquire_each(requests)).map(BlockingScope::new)
}
