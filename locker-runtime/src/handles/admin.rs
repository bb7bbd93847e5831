//! Administration of names: for servers, tools and operators.

use super::request_with_retry;
use crate::{
    error::Result,
    key::Key,
    locker::Locker,
    primitives::{HoldRequest, IdempotencyKey, Reply, Request, inspection::Inspection},
};
use futures_util::future::join_all;
use std::borrow::Cow;

/// Lists, inspects, evicts and deletes names of every kind. Created by [`Locker::admin`].
#[derive(Clone, Debug)]
pub struct Admin(Locker);

/// The kinds that keys have between the prefix and the name. The keys of attributes have none of them.
const KINDS: [&str; 9] =
    ["lock", "rwlock", "semaphore", "rate", "event", "watchdog", "barrier", "latch", "counter"];

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

    /// Returns the key of a name of a kind (`lock`, `semaphore`, `rate`, `event`, `watchdog`, ..).
    #[must_use]
    pub fn key(&self, kind: &str, name: &str) -> Key {
        Key::named(self.0.prefix(), kind, name)
    }

    /// Returns the name as [`names`](Self::names) lists it: itself, or its md5 if a key cannot spell it, because it has
    /// braces or control characters or is too long.
    #[must_use]
    pub fn stored_name<'a>(&self, kind: &str, name: &'a str) -> Cow<'a, str> {
        let key = self.key(kind, name);
        let stored = &key.as_str()[self.0.prefix().len() + kind.len() + 1..];
        if stored == name { Cow::Borrowed(name) } else { Cow::Owned(stored.to_owned()) }
    }

    /// Returns the state of a name, or `None` if the name is not in use.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn inspect(&self, key: &Key) -> Result<Option<Inspection>> {
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
        let Some(Inspection { holders, used, .. }) = self.inspect(key).await? else { return Ok(false) };
        let Some(up_to) = holders.iter().map(|held| held.fence).max() else { return Ok(false) };
        // A lock does not count what is used.
        let request = match used {
            None => Request::Lock(HoldRequest::Evict { of: None, up_to }),
            Some(_) => Request::Semaphore(HoldRequest::Evict { of: None, up_to }),
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
    /// # Errors
    /// `Misused` if the store cannot list its names; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn names(&self) -> Result<Vec<(String, String)>> {
        let keys = self.0.store().keys(self.0.prefix()).await?;
        let mut names = Vec::with_capacity(keys.len());
        for keys in keys.chunks(INSPECTIONS_AT_A_TIME) {
            let in_use = join_all(keys.iter().map(|key| self.in_use(key))).await;
            for (key, in_use) in keys.iter().zip(in_use) {
                names.extend(
                    self.split(key).filter(|_| in_use).map(|(kind, name)| (kind.into(), name.into())),
                );
            }
        }
        names.sort();
        Ok(names)
    }

    fn split<'a>(&self, key: &'a Key) -> Option<(&'a str, &'a str)> {
        let (kind, name) = key.as_str()[self.0.prefix().len()..].split_once(':')?;
        KINDS.contains(&kind).then_some((kind, name))
    }

    /// Returns whether a name is in use. Across a network the keys of a semaphore outlive its last hold by a minute
    /// unless they are inspected. A name whose inspection fails counts as in use.
    async fn in_use(&self, key: &Key) -> bool {
        let outlives = matches!(self.split(key), Some(("semaphore" | "rwlock", _)));
        self.is_embedded() || !outlives || !matches!(self.inspect(key).await, Ok(None))
    }

    /// Sends one request to the store and waits for its reply.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ping(&self) -> Result<()> {
        self.0.store().call(&self.key("ping", ""), &Request::Inspect).await.map(drop)
    }
}
