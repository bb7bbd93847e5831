//! Several locks for one call: in one order everywhere, all or none.

use super::scope::{Hold, Holder};
use crate::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
    handles::{
        LockRequest,
        lock_all::{acquire_in_order, in_order},
    },
    key::{FunctionDigest, Key, KeyBuilder, KeyPart},
    lease::Guard,
    locker::Locker,
};
use std::fmt;

/// One key per argument.
pub struct Each<'a> {
    locker: &'a Locker,
    function: &'a FunctionDigest,
    keys: Vec<Key>,
}

/// One request per key, in the order of the keys.
#[derive(Debug)]
pub struct Requests {
    requests: Vec<LockRequest>,
    on_expiry: bool,
}

/// The keys, waiting for their arguments.
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

/// The requests: sorted, so that no two callers wait for each other, and every key once.
pub fn each(each: Each<'_>, request: impl FnMut(Key) -> LockRequest) -> Requests {
    let mut keys = each.keys;
    in_order(&mut keys);
    Requests { requests: keys.into_iter().map(request).collect(), on_expiry: false }
}

impl Requests {
    /// Leaves all the locks, once acquired, to the end of their leases.
    #[must_use]
    pub fn release_on_expiry(self) -> Self {
        Self { on_expiry: true, ..self }
    }

    fn all_held(on_expiry: bool, mut guards: Vec<Guard>) -> Result<Hold> {
        if on_expiry {
            guards.iter_mut().for_each(Guard::release_on_expiry);
        }
        Hold::of(guards).ok_or_else(|| Error::new(ErrorKind::Misused, "`each` without parts"))
    }
}

/// Waits for all the locks, with the patience for one.
///
/// # Errors
/// Those of `acquire`; then none is held.
pub async fn acquire_each(Requests { requests, on_expiry }: Requests) -> Result<Hold> {
    Requests::all_held(on_expiry, acquire_in_order(requests).await?)
}

/// Waits for all the locks, blocking the thread.
///
/// # Errors
/// Those of `acquire_blocking`; then none is held.
pub fn acquire_each_blocking(requests: Requests) -> Result<Holder> {
    block_on(acquire_each(requests)).map(Holder::new)
}
