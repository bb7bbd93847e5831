//! The trait of stores, what opens one, and the embedded store.

pub mod memory;
pub mod opening;
#[cfg(feature = "_network")]
pub mod url;

use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    mailboxes::Mailboxes,
    primitives::{Reply, Request},
};
use std::{
    collections::BTreeSet,
    fmt,
    future::{Future, Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// A store: keeps state, runs requests atomically and delivers notifications.
///
/// An implementation has three duties. A store whose operators see and end holds has a fourth and a fifth.
/// 1. [`call`](Store::call) carries out each request at one key atomically, as the primitive's `step` does. If the
///    returned future is dropped before its first poll, nothing is carried out. [`Error::is_certain`] of an error says
///    whether the request was provably not carried out; otherwise it may have been, or may still be.
/// 2. Notifications reach [`mailboxes`](Store::mailboxes) as soon as possible. If they may be lost,
///    [`waiter_ttl`](Store::waiter_ttl) is `Some`, and waiters ask again in time.
/// 3. A hold ends when its lease is over, even if no request comes.
/// 4. [`page`](Store::page) lists every key that is in use from the first page to the last.
/// 5. [`describe`](Store::describe) keeps texts for a time, and [`descriptions`](Store::descriptions) returns them, to
///    every process that shares the store.
///
/// A store across a network keeps the default of [`waiter_ttl`](Store::waiter_ttl), and has
/// [`expected_rtt`](Store::expected_rtt), [`outage`](Store::outage) and
/// [`has_replied_since`](Store::has_replied_since): the last two tell a time-out from an outage.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Carries out one request at `key`.
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a>;

    /// [`call`](Store::call) for a caller that has just read the clock as `now`. A store in this process need not read
    /// it again.
    fn call_at<'a>(&'a self, key: &'a Key, request: &'a Request, _now: Timestamp) -> Calling<'a> {
        self.call(key, request)
    }

    /// Returns up to `limit` keys in use that start with `prefix` and come after the text `after`, in the order of
    /// their bytes.
    ///
    /// A key that is in use from the first page to the last is on exactly one page. A key that comes or goes between
    /// may be on one or on none. A key that has just become idle may still be listed.
    fn page<'a>(
        &'a self,
        _prefix: &'a str,
        _after: Option<&'a str>,
        _limit: usize,
    ) -> Answering<'a, KeyPage> {
        Box::pin(ready(Err(Error::new(ErrorKind::Misused, "this store cannot list its keys"))))
    }

    /// Keeps texts about users of keys with this `prefix`, each for its time, for operators. A later text of a subject
    /// replaces an earlier one. Lockers call this in the background, and again every ten minutes. By default nothing is
    /// kept.
    fn describe<'a>(&'a self, _prefix: &'a str, _descriptions: &'a [Description]) -> Answering<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    /// Returns the text of each subject, as far as it is known.
    fn descriptions<'a>(
        &'a self,
        _prefix: &'a str,
        subjects: &'a [String],
    ) -> Answering<'a, Vec<Option<String>>> {
        Box::pin(ready(Ok(vec![None; subjects.len()])))
    }

    /// Returns the mailboxes to which notifications for this process are delivered.
    fn mailboxes(&self) -> &Mailboxes;

    /// Returns the current outage at `key`, if known. Waiters that time out during it get this error instead of
    /// `TimedOut`. If none is known, they wait for the reply to their cancel.
    fn outage(&self, _key: &Key) -> Option<Error> {
        None
    }

    /// Returns whether the server of `key` is known to have replied to any request since `time`. Default `false`. A
    /// waiter that timed out and got no reply to its cancel gets `TimedOut` if it has, and `Unavailable` otherwise.
    fn has_replied_since(&self, _key: &Key, _time: Timestamp) -> bool {
        false
    }

    /// Returns the expected round-trip time of a request at `key`. The first reply is awaited at least this long, even
    /// if the caller's timeout is shorter. Default zero.
    fn expected_rtt(&self, _key: &Key) -> Duration {
        Duration::ZERO
    }

    /// Returns how long a waiter keeps its place in the queue between two requests, or `None` if all waiters are in the
    /// store's process: no notification is lost there, and no waiter vanishes unnoticed. Default 30 s.
    fn waiter_ttl(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }

    /// Returns whether the fence of a hold is the time of its grant, in microseconds since the Unix epoch by the clock
    /// of the store. It is later if a key was granted more often than once per microsecond. Default `false`.
    fn fence_is_time(&self) -> bool {
        false
    }

    /// Returns the first 32 bits that the ids of all waiters of this process must have, if other processes address
    /// their notifications by them. Default `None`: the bits are random.
    fn id_prefix(&self) -> Option<u32> {
        None
    }

    /// Returns the longest lease that the store grants. Default: any.
    fn longest_lease(&self) -> Duration {
        Duration::MAX
    }

    /// Returns the kind of store, as metrics name it: a word in lower case. Default `other`.
    fn name(&self) -> &'static str {
        "other"
    }

    /// Returns how far a test has moved the clock of this store on. Default zero.
    #[doc(hidden)]
    #[cfg(feature = "_control")]
    fn ahead(&self) -> Duration {
        Duration::ZERO
    }
}

/// A store that several owners share.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        (**self).call(key, request)
    }

    fn call_at<'a>(&'a self, key: &'a Key, request: &'a Request, now: Timestamp) -> Calling<'a> {
        (**self).call_at(key, request, now)
    }

    fn page<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answering<'a, KeyPage> {
        (**self).page(prefix, after, limit)
    }

    fn describe<'a>(&'a self, prefix: &'a str, descriptions: &'a [Description]) -> Answering<'a, ()> {
        (**self).describe(prefix, descriptions)
    }

    fn descriptions<'a>(
        &'a self,
        prefix: &'a str,
        subjects: &'a [String],
    ) -> Answering<'a, Vec<Option<String>>> {
        (**self).descriptions(prefix, subjects)
    }

    fn mailboxes(&self) -> &Mailboxes {
        (**self).mailboxes()
    }

    fn outage(&self, key: &Key) -> Option<Error> {
        (**self).outage(key)
    }

    fn has_replied_since(&self, key: &Key, time: Timestamp) -> bool {
        (**self).has_replied_since(key, time)
    }

    fn expected_rtt(&self, key: &Key) -> Duration {
        (**self).expected_rtt(key)
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        (**self).waiter_ttl()
    }

    fn fence_is_time(&self) -> bool {
        (**self).fence_is_time()
    }

    fn id_prefix(&self) -> Option<u32> {
        (**self).id_prefix()
    }

    fn longest_lease(&self) -> Duration {
        (**self).longest_lease()
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }

    #[cfg(feature = "_control")]
    fn ahead(&self) -> Duration {
        (**self).ahead()
    }
}

/// A text about a user of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Description {
    /// The user that the text is about: ASCII letters, digits and `:`.
    pub subject: String,
    /// The text.
    pub text: String,
    /// How long the store keeps it at least.
    pub keep: Duration,
}

/// Some of the keys of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys, in order.
    pub keys: Vec<Key>,
    /// The text after which the next page begins, or `None` if this is the last one.
    pub next: Option<String>,
}

/// An answer other than a reply, to be awaited.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The first keys after a text, picked from keys that come in no order.
#[derive(Debug)]
pub struct FirstKeys<'a> {
    after: Option<&'a str>,
    limit: usize,
    keys: BTreeSet<Key>,
    has_more: bool,
}

impl<'a> FirstKeys<'a> {
    /// Begins with no key. At least one is taken, whatever `limit` is.
    #[must_use]
    pub fn new(after: Option<&'a str>, limit: usize) -> Self {
        Self { after, limit: limit.max(1), keys: BTreeSet::new(), has_more: false }
    }

    /// Returns whether a key with this text may be one of the first.
    pub fn takes(&mut self, text: &str) -> bool {
        if self.after.is_some_and(|after| text <= after) {
            return false;
        }
        let beyond =
            self.keys.len() >= self.limit && self.keys.last().is_some_and(|last| text > last.as_str());
        self.has_more |= beyond;
        !beyond
    }

    /// Adds a key for which [`takes`](Self::takes) has returned `true`.
    pub fn add(&mut self, key: Key) {
        if self.keys.insert(key) && self.keys.len() > self.limit {
            self.keys.pop_last();
            self.has_more = true;
        }
    }

    /// Returns the page of the keys that were added.
    #[must_use]
    pub fn page(self) -> KeyPage {
        let next = self.keys.last().filter(|_| self.has_more).map(|last| last.as_str().to_owned());
        KeyPage { keys: self.keys.into_iter().collect(), next }
    }
}

/// A call: ready at once, without an allocation, from a store in this process, pending from others.
pub enum Calling<'a> {
    /// The reply is here. Only a store without a [`waiter_ttl`](Store::waiter_ttl) returns this.
    Ready(Ready<Result<Reply>>),
    /// The reply is to be awaited.
    Pending(Pin<Box<dyn Future<Output = Result<Reply>> + Send + 'a>>),
}

impl Calling<'_> {
    /// Returns a call that is ready.
    #[must_use]
    pub fn answered(result: Result<Reply>) -> Self {
        Self::Ready(ready(result))
    }
}

impl fmt::Debug for Calling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Ready(_)) { "Calling::Ready" } else { "Calling::Pending" })
    }
}

impl Future for Calling<'_> {
    type Output = Result<Reply>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(answer) => Pin::new(answer).poll(context),
            Self::Pending(answer) => answer.as_mut().poll(context),
        }
    }
}
