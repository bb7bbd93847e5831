//! Administration of names: for servers, tools and operators.

mod explain;
mod listing;

use super::request_with_retry;
pub use crate::locker::FunctionSource;
use crate::locker::Locker;
pub use explain::Explanation;
use futures_util::future::join_all;
pub use listing::{Filter, Listed, Page};
use locker_core::{
    error::Result,
    key::{Key, KeyPart, Named},
    primitives::{
        HoldRequest, IdempotencyKey, Reply, Request,
        inspection::{Held, Inspection},
        record,
    },
};
use std::{borrow::Cow, time::Duration};

/// Lists, inspects, evicts and deletes keys of every kind: names, and functions with attributes. Created by
/// [`Locker::admin`].
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// let locker = Locker::memory();
/// let guard = locker.lock("invoice 7").acquire().await?;
/// let (admin, key) = (locker.admin(), locker.admin().key("lock", "invoice 7"));
/// let state = admin.inspect(&key).await?.expect("the lock is held");
/// assert_eq!(state.holders[0].fence, guard.fence());
/// // The holder gets `Lost`.
/// assert!(admin.evict_up_to(&key, guard.fence()).await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Admin(Locker);

/// How many keys of a store a page passes at a time if a filter drops most of them.
const KEYS_AT_A_TIME: usize = 50_000;

/// How many inspections are under way at a time: they share few round trips.
const INSPECTIONS_AT_A_TIME: usize = 512;

impl Locker {
    /// Returns the administration of the names in this locker's store.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin(self.clone())
    }
}

impl Admin {
    /// Returns whether the store is in this process: a call that need not wait is then ready at its first poll.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.0.is_embedded()
    }

    /// Returns the key of a name of a kind, one of [`Named::KINDS`].
    #[must_use]
    pub fn key(&self, kind: &str, name: &str) -> Key {
        Key::named(self.0.prefix(), kind, name)
    }

    /// Returns the kind and the name, or the function, of a key. Returns `None` if it is not a key below this locker's
    /// prefix.
    #[must_use]
    pub fn named(&self, key: &Key) -> Option<Named> {
        Named::of(self.0.prefix(), key)
    }

    /// Returns the key of the lock that [`lock_on`](Locker::lock_on) takes, and an attribute with this `name = ".."`
    /// and these arguments in `args(..)`.
    #[must_use]
    pub fn key_on(&self, name: &str, arguments: &[&dyn KeyPart]) -> Key {
        Key::on(self.0.prefix(), self.0.key_format(), name, arguments)
    }

    /// Returns the name as [`names`](Self::names) lists it: itself, or its md5 if a key cannot spell it, because it has
    /// braces or control characters or is too long.
    #[must_use]
    pub fn stored_name<'a>(&self, kind: &str, name: &'a str) -> Cow<'a, str> {
        let key = self.key(kind, name);
        let stored = &key.as_str()[self.0.prefix().len() + kind.len() + 1..];
        if stored == name { Cow::Borrowed(name) } else { Cow::Owned(stored.to_owned()) }
    }

    /// Returns the state of a key, or `None` if the key is not in use. The holders have their notes, if these are
    /// known.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn inspect(&self, key: &Key) -> Result<Option<Inspection>> {
        let mut seen = [self.look(key).await?];
        self.add_notes(std::slice::from_ref(key), &mut seen).await;
        let [seen] = seen;
        Ok(seen)
    }

    /// Returns the state of each key, in their order, as [`inspect`](Self::inspect) does. 512 requests at a time share
    /// round trips.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn inspect_all(&self, keys: &[Key]) -> Result<Vec<Option<Inspection>>> {
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(INSPECTIONS_AT_A_TIME) {
            let seen = join_all(keys.iter().map(|key| self.look(key))).await;
            let mut seen = seen.into_iter().collect::<Result<Vec<_>>>()?;
            self.add_notes(keys, &mut seen).await;
            all.extend(seen);
        }
        Ok(all)
    }

    /// Returns the time since the grant of a hold: a lock does not keep it, but the fences of most stores are times.
    /// Returns `None` on etcd and ZooKeeper.
    #[must_use]
    pub fn age(&self, held: &Held) -> Option<Duration> {
        held.age.or_else(|| self.0.age(held.fence))
    }

    async fn look(&self, key: &Key) -> Result<Option<Inspection>> {
        match request_with_retry(&self.0, key, Request::Inspect).await?.reply {
            Reply::Inspected(inspection) => Ok(Some(*inspection)),
            _ => Ok(None),
        }
    }

    /// Ends all current holds of a lock, a semaphore or a read/write lock by force. Returns `false` if nothing was
    /// held.
    ///
    /// Waiters keep their place in the queue and are served at once, with higher fences. Holds that are granted while
    /// this call is under way stay. An evicted holder gets `Lost` from its next renewal, at the latest after a third of
    /// its lease, or from its release. Until then it and the next holder may both be at work.
    ///
    /// # Errors
    /// `Conflict` if the name comes to belong to another kind of primitive during the call; `Unavailable`: the holds
    /// may have been ended.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, the holds may have been ended.
    pub async fn evict(&self, key: &Key) -> Result<bool> {
        self.evict_up_to(key, u64::MAX).await
    }

    /// Ends the current holds with this fence or a lower one, otherwise as [`evict`](Self::evict): the holds that an
    /// operator has seen end, and those that were granted since stay. Returns `false` if nothing with such a fence was
    /// held.
    ///
    /// A hold of another program, such as the Python decorator, has no fence of its own: it is seen with the fence of
    /// the hold before it. A run on Redis ends as a whole, if its [fence](crate::Held::fence) is not above `fence`;
    /// members that have not held yet queue again.
    ///
    /// # Errors
    /// As [`evict`](Self::evict).
    ///
    /// # Cancel safety
    /// As [`evict`](Self::evict).
    pub async fn evict_up_to(&self, key: &Key, fence: u64) -> Result<bool> {
        let Some(Inspection { holders, used, fired, .. }) = self.look(key).await? else { return Ok(false) };
        let ended = holders.iter().map(|held| held.fence).filter(|held| *held <= fence);
        let Some(up_to) = ended.max() else { return Ok(false) };
        // A lock does not count what is used, and a record tells whether it has succeeded.
        let request = match (used, fired) {
            (None, None) => Request::Lock(HoldRequest::Evict { of: None, up_to }),
            (None, Some(_)) => Request::Record(record::Request::Hold(HoldRequest::Evict { of: None, up_to })),
            (Some(_), _) => Request::Semaphore(HoldRequest::Evict { of: None, up_to }),
        };
        let settled = request_with_retry(&self.0, key, request).await?;
        Ok(settled.reply == Reply::Released || settled.retried)
    }

    /// Deletes a name with its holds and its use. Its waiters get `Conflict`. Returns `false` if the name was not in
    /// use.
    ///
    /// # Errors
    /// `Unavailable`: the name may have been deleted.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, the name may have been deleted.
    pub async fn delete(&self, key: &Key) -> Result<bool> {
        let request = Request::Delete(IdempotencyKey::new(self.0.new_id()));
        let settled = request_with_retry(&self.0, key, request).await?;
        self.0.refusals().forget(key);
        Ok(settled.reply == Reply::Deleted || settled.retried)
    }

    /// Returns the names in use as (kind, name), sorted. A name that has just become idle may still be listed.
    ///
    /// The keys of attributes have no names: [`page`](Self::page) lists them, too.
    ///
    /// # Errors
    /// `Misused` if the store cannot list its names; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn names(&self) -> Result<Vec<(String, String)>> {
        let keys = self.0.page(None, usize::MAX).await?.keys;
        let mut names: Vec<_> = keys
            .iter()
            .filter_map(|key| match self.named(key)? {
                Named::Kind { kind, name, .. } => Some((kind.to_owned(), name)),
                _ => None,
            })
            .collect();
        names.sort();
        Ok(names)
    }

    /// Sends one request to the store and waits for its reply.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ping(&self) -> Result<()> {
        self.0.call_once(&self.key("ping", ""), &Request::Inspect).await.map(drop)
    }
}
