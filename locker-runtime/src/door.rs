//! The low-level door: for servers, whose clients hold by name and not by guard.

use crate::{
    Result,
    config::between,
    id::Id,
    key::Key,
    locker::{Asking, Locker, PERSISTENCE, Patience},
    primitives::{
        Holding, Once, Reply, Request, TOMBSTONE, Wait, inspection::Inspection, semaphore::Permits,
    },
    request::unexpected,
};
use futures_util::future::join_all;
use std::{borrow::Cow, time::Duration};

/// Holding by name, looking at names, ending what others hold, forgetting names: made by [`Locker::door`]. Nothing
/// here is renewed or released by itself.
#[derive(Clone, Debug)]
pub struct Door(Locker);

/// What a caller of [`Door::acquire`] has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Rises with every grant; the same again when the key was held already.
    pub fence: u64,
}

/// What stands between prefix and name; keys of attributes have something else there.
const KINDS: [&str; 9] =
    ["lock", "rwlock", "semaphore", "rate", "event", "watchdog", "barrier", "latch", "counter"];

/// So many calls at a time share few round trips.
const LOOKS_AT_A_TIME: usize = 512;

impl Door {
    pub(crate) fn new(locker: Locker) -> Self {
        Self(locker)
    }

    /// Whether the store is in this process: a call that need not wait is then answered when it is first polled.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.0.store().liveness().is_none()
    }

    /// The key of a name of a kind (`lock`, `semaphore`, `rate`, `event`, `watchdog`, ..).
    #[must_use]
    pub fn key(&self, kind: &str, name: &str) -> Key {
        Key::named(self.0.prefix(), kind, name)
    }

    /// A name as [`names`](Self::names) lists it. Borrowed, it is the name itself; owned, the md5 that stands for a name
    /// that keys cannot spell, because it has braces or control characters or is too long.
    #[must_use]
    pub fn stored_name<'a>(&self, kind: &str, name: &'a str) -> Cow<'a, str> {
        let key = self.key(kind, name);
        let stored = &key.as_str()[self.0.prefix().len() + kind.len() + 1..];
        if stored == name { Cow::Borrowed(name) } else { Cow::Owned(stored.to_owned()) }
    }

    /// Takes a permit of the semaphore `name` of `size` for the client that calls itself `holder`.
    ///
    /// A holder that is held already gets the same fence again, no second permit, and its expiry stays. `expires`
    /// is 1 ms to 10 years, [`Duration::MAX`] for a hold that never ends by itself. `timeout` as for
    /// [`LockRequest`](crate::LockRequest).
    ///
    /// # Errors
    /// `TimedOut`; `Conflict` when the name is deleted meanwhile or is of another kind; `Misused`; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and gives back what was granted to this very call.
    pub fn acquire<'a>(
        &'a self,
        name: &str,
        size: u64,
        holder: &str,
        expires: Duration,
        timeout: Duration,
    ) -> impl Future<Output = Result<Held>> + Send + use<'a> {
        let key = self.key("semaphore", name);
        let ask = Permits { size, permits: 1, key: Id::of(holder) };
        let what = Keyed { id: self.0.new_id(), ask, lease: expires };
        // Not an `async fn`, which would store all arguments in every waiter, and twice.
        async move {
            check_lease(what.lease)?;
            // In the embedded store most permits are free: they are asked for without a mailbox, and, because nobody
            // gives up an answer that is here, by no other name than the hold's.
            if self.is_embedded()
                && let Some(Ok(Reply::Granted { fence })) = self.0.at_once(&key, &what.by_its_name())
            {
                return Ok(Held { fence });
            }
            let answer = self.0.ask(&key, &what, Patience::up_to(timeout)).await?;
            if answer.doubtful {
                // A copy of it that comes when the hold was released, by name, would hold again for nobody.
                self.0.send_off(&key, what.refuse(), TOMBSTONE, |_| ());
            }
            match answer.reply {
                Reply::Granted { fence } => Ok(Held { fence }),
                reply => Err(unexpected(&reply).with_key(key.as_str())),
            }
        }
    }

    /// Lets the hold of `holder` last `expires` from now; `false`: there is none.
    ///
    /// # Errors
    /// `Conflict` when the name is of another kind; `Misused`; `Unavailable`: it may have been renewed.
    ///
    /// # Cancel safety
    /// When the future is dropped it may have been renewed.
    pub async fn renew(&self, name: &str, holder: &str, expires: Duration) -> Result<bool> {
        check_lease(expires)?;
        let request = Holding::Renew { id: Id::of(holder), lease: expires, once: self.once() };
        let reply = self.tell(&self.key("semaphore", name), Request::Semaphore(request)).await?.0;
        Ok(matches!(reply, Reply::Renewed { .. }))
    }

    /// Ends the hold of `holder`; `false`: there is none.
    ///
    /// # Errors
    /// `Conflict` when the name is of another kind; `Unavailable`: it may have been released.
    ///
    /// # Cancel safety
    /// When the future is dropped it may have been released.
    pub async fn release(&self, name: &str, holder: &str) -> Result<bool> {
        let request = Holding::Release { id: Id::of(holder), tombstone: false, once: self.once() };
        let (reply, repeated) = self.tell(&self.key("semaphore", name), Request::Semaphore(request)).await?;
        Ok(reply == Reply::Released || repeated)
    }

    /// How a name looks now; `None`: it is not in use.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn inspect(&self, key: &Key) -> Result<Option<Inspection>> {
        match self.tell(key, Request::Inspect).await?.0 {
            Reply::Inspected(inspection) => Ok(Some(*inspection)),
            _ => Ok(None),
        }
    }

    /// Ends the holds that a lock, a semaphore or a read/write lock has now, whoever has them: their next renewal and
    /// their release say `Lost`. Those who wait stay in line and are served at once, with higher fences; whoever was
    /// served meanwhile keeps its hold. `false`: nobody held it.
    ///
    /// Whoever lost its hold learns it at its next renewal, a third of its lease later at most: until then it and the
    /// next holder may both be at work.
    ///
    /// # Errors
    /// `Conflict` when the name becomes one of another kind meanwhile; `Unavailable`: they may have been ended.
    ///
    /// # Cancel safety
    /// When the future is dropped they may have been ended.
    pub async fn evict(&self, key: &Key) -> Result<bool> {
        let Some(Inspection { holders, used, .. }) = self.inspect(key).await? else { return Ok(false) };
        let Some(up_to) = holders.iter().map(|held| held.fence).max() else { return Ok(false) };
        // A lock does not count what is used.
        let request = match used {
            None => Request::Lock(Holding::Evict { of: None, up_to }),
            Some(_) => Request::Semaphore(Holding::Evict { of: None, up_to }),
        };
        let (reply, repeated) = self.tell(key, request).await?;
        Ok(reply == Reply::Released || repeated)
    }

    /// Forgets a name, holds and use included; those who wait get `Conflict`. `false`: it was not in use.
    ///
    /// # Errors
    /// `Unavailable`: it may have been deleted.
    ///
    /// # Cancel safety
    /// When the future is dropped it may have been deleted.
    pub async fn delete(&self, key: &Key) -> Result<bool> {
        let (reply, repeated) = self.tell(key, Request::Delete(Once::new(self.0.new_id()))).await?;
        self.0.refusals().forget(key);
        Ok(reply == Reply::Deleted || repeated)
    }

    /// The names in use as (kind, name), in order; one that has just become idle may still be among them.
    ///
    /// # Errors
    /// `Misused` when the store cannot list its names; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn names(&self) -> Result<Vec<(String, String)>> {
        let keys = self.0.store().keys(self.0.prefix()).await?;
        let mut names = Vec::with_capacity(keys.len());
        for keys in keys.chunks(LOOKS_AT_A_TIME) {
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

    /// Across a network, what could be held outlives the last hold by a minute unless it is looked at. What cannot be
    /// told counts as in use.
    async fn in_use(&self, key: &Key) -> bool {
        let outlives = matches!(self.split(key), Some(("semaphore" | "rwlock", _)));
        self.is_embedded() || !outlives || !matches!(self.inspect(key).await, Ok(None))
    }

    /// Asks the store for an answer, whatever it is.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ping(&self) -> Result<()> {
        self.0.store().call(&self.key("ping", ""), &Request::Inspect).await.map(drop)
    }

    /// Nothing is sent twice to a store of this process.
    fn once(&self) -> Option<Once> {
        (!self.is_embedded()).then(|| Once::new(self.0.new_id()))
    }

    async fn tell(&self, key: &Key, request: Request) -> Result<(Reply, bool)> {
        let told = self.0.insist(key, request, PERSISTENCE).await?;
        match told.reply {
            Reply::WrongKind => Err(unexpected(&Reply::WrongKind).with_key(key.as_str())),
            reply => Ok((reply, told.repeated)),
        }
    }
}

fn check_lease(lease: Duration) -> Result<()> {
    if lease == Duration::MAX { Ok(()) } else { between("expires", lease, Duration::from_millis(1)) }
}

/// An attempt to hold under a name that others may use as well: it confirms by asking again, so that it does not
/// prolong what another attempt was granted.
struct Keyed {
    id: Id,
    ask: Permits,
    lease: Duration,
}

impl Keyed {
    /// Asks without waiting, as an attempt that has no other name than the hold.
    fn by_its_name(&self) -> Request {
        let Self { ask, lease, .. } = *self;
        Request::Semaphore(Holding::Acquire { id: ask.key, lease, wait: None, ask })
    }

    /// Refuses the attempt from now on. What it has got stays, having a name of its own.
    fn refuse(&self) -> Request {
        Request::Semaphore(Holding::Release { id: self.id, tombstone: true, once: None })
    }
}

impl Asking for Keyed {
    fn id(&self) -> Id {
        self.id
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        let Self { id, ask, lease } = *self;
        Request::Semaphore(Holding::Acquire { id, lease, wait, ask })
    }

    fn cancel(&self, tombstone: bool) -> Request {
        Request::Semaphore(Holding::Cancel { id: self.id, tombstone })
    }

    fn lease(&self) -> Duration {
        self.lease
    }
}
