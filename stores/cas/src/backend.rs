//! The trait of a backend: values that can be compared and set, and messages between processes.

use super::time::{Basis, Found, Time};
use futures_util::future::BoxFuture;
use locker_core::{clock::Timestamp, error::Result, key::Key};
use std::{fmt, future::ready, time::Duration};

/// The version of a value, which is different after every write: above zero, or [`ABSENT`].
pub type Version = i64;

/// The version of a key without a value.
pub const ABSENT: Version = 0;

/// A version that no value has: a comparison with it returns the value.
pub const NO_VERSION: Version = -1;

/// The address of one process of one store: a random number, drawn when the store is opened. The ids of its waiters
/// begin with it.
pub type Inbox = u32;

/// Draws the number of an inbox.
pub type Draw = Box<dyn Fn() -> Inbox + Send + Sync>;

/// Returns the usual [`Draw`].
///
/// # Panics
/// If the operating system has no random numbers.
#[must_use]
pub fn random_inbox() -> Inbox {
    getrandom::u32().expect("the operating system has no random numbers")
}

/// A time in which a store has lost no write that it had answered. Once `quiet` is over, no hold of an earlier epoch
/// can be granted a second time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Another number in each epoch.
    pub id: i64,
    /// How long nothing may be granted, if grants of an earlier epoch may have been lost.
    pub quiet: Option<Duration>,
}

/// Keys with their values.
pub type Values = Vec<(String, Vec<u8>)>;

/// Values by key, of which each can be replaced if it has not changed.
///
/// That is all that a store needs: queues, leases, fences, hand-offs, repetitions and lists stand on it. A backend has
/// no queue in rows and no lock of its own, and needs no transaction but the single write. `contract` has the duties
/// as tests.
///
/// The futures may be dropped at any time. A write whose future was dropped, or whose error is not
/// [certain](locker_core::error::Error::is_certain), may be carried out at any later time; since it names the version
/// that it replaces, it has no effect once another write has succeeded. The store limits the time of each call.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Replaces the value of a key if it still has the expected version, and sends messages if it does. Without a
    /// value, only compares the version.
    ///
    /// # Errors
    /// A certain one if nothing was written and nothing will be.
    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>>;

    /// Sends messages apart from a write: those of a write whose outcome was unknown at first. Returns the inboxes
    /// that no process listens to.
    fn send(&self, messages: Vec<Message>) -> BoxFuture<'_, Result<Vec<Inbox>>>;

    /// Returns up to `limit` values whose keys start with `prefix` and come after the text `after`, in the order of the
    /// bytes of their keys. An end of the list is reached if there are fewer.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Values>>;

    /// Returns the kind of store, as metrics name it: a word in lower case. Default `other`.
    fn name(&self) -> &'static str {
        "other"
    }

    /// Returns bounds of the present time of the clock that all processes share, and what a write must find there. A
    /// backend without such a clock keeps one in a key: it implements `Ticking` (`ticker.rs`).
    fn time(&self) -> Time;

    /// Makes sure that [`Time::gaps`] has all the time that was lost up to now, while no process called. Called before
    /// a step that uses it. By default it does nothing, as for a clock that goes by itself.
    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    /// Returns a number that is at least as high as every fence that was granted at a key before its value was last
    /// removed. To be read after the answer that found the value absent.
    fn fence_floor(&self) -> u64;

    /// Returns whether [`fence_floor`](Self::fence_floor) is the time of the clock that all processes share, in
    /// microseconds since the Unix epoch, unless fences have outrun it. Then the fence of a hold is the time of its
    /// grant. Default `false`.
    fn fence_is_time(&self) -> bool {
        false
    }

    /// Returns whether a key that this process has not seen must be read before a step runs, because
    /// [`fence_floor`](Self::fence_floor) holds only for keys that were seen to be absent. Default `false`.
    fn reads_first(&self) -> bool {
        false
    }

    /// Returns the epoch of the store, as far as this process knows. It changes when the store may have lost writes. By
    /// default there is one, for a store that loses none.
    fn epoch(&self) -> Epoch {
        Epoch::default()
    }

    /// Returns the address of this process.
    fn inbox(&self) -> Inbox;

    /// Sets the receiver of messages to this process. Called once, before any other call.
    fn listen(&self, receiver: Box<dyn Fn(Received<'_>) + Send + Sync>);

    /// The maximum of bytes of one value. A request that would make a value larger is refused.
    fn max_value_len(&self) -> usize;
}

/// One write, or one comparison.
#[derive(Clone, Debug)]
pub struct Write {
    /// The key of the value.
    pub key: Key,
    /// The version that the value must have, 0 if there must be none.
    pub expected: Version,
    /// The new value. `None` to compare the version only.
    pub value: Option<Vec<u8>>,
    /// Whether the write must survive a crash of the server before it is answered. Otherwise it may be lost.
    pub durable: bool,
    /// To be sent if the write succeeds.
    pub messages: Vec<Message>,
    /// How long the value matters after this write. The backend may remove it at any time after that, and never before.
    /// [`Duration::MAX`] if it matters for ever.
    pub lasts: Duration,
    /// The holder that is to be seen by others than this library, if exactly one holds an exclusive lock.
    pub holder: Option<Holder>,
    /// How long the longest hold in the value lasts after this write, [`Duration::MAX`] if it has no end.
    pub holds: Duration,
    /// The id of the epoch that the value was made in. In another epoch the write fails like a lost comparison. `None`
    /// for values that nobody relies on.
    pub epoch: Option<i64>,
    /// What the clock must show. Otherwise the write or comparison fails with [`Outcome::Ticked`].
    pub basis: Basis,
    /// Whether the write changes nothing but the places of waiters. The backend may then remove the value when it would
    /// have removed the replaced one.
    pub only_waits: bool,
    /// Whether the caller has ended a hold or a wait, and may end itself now.
    pub leaves: bool,
}

impl Write {
    /// Returns a comparison that returns the value of `key`.
    #[must_use]
    pub fn look(key: Key) -> Self {
        Self {
            key,
            expected: NO_VERSION,
            value: None,
            durable: false,
            messages: Vec::new(),
            lasts: Duration::ZERO,
            holder: None,
            holds: Duration::ZERO,
            epoch: None,
            basis: Basis::Served,
            only_waits: false,
            leaves: false,
        }
    }
}

/// The holder of an exclusive lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The fence of its grant.
    pub fence: u64,
    /// On the clock of the backend.
    pub until: Timestamp,
}

/// What came of a write or of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The version was the expected one.
    Matched {
        /// The present version: a new one after a write.
        version: Version,
        /// Of the inboxes that messages were sent to, those that no process listens to.
        gone: Vec<Inbox>,
    },
    /// The version is another one, and nothing was written. A write that lost a conflict may also return this with the
    /// expected version: it is tried again.
    Differs {
        /// The present version.
        version: Version,
        /// The present value. `None` if there is none.
        value: Option<Vec<u8>>,
    },
    /// The clock was not the expected one, and nothing was written. If the version was the expected one, this is how
    /// the clock was found.
    Ticked(Option<Found>),
}

/// A text for another process, without control characters except line feeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The process that it is for.
    pub to: Inbox,
    /// What it says.
    pub text: String,
}

/// What a backend tells the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A message to this process.
    Text(&'a str),
    /// Messages to this process may have been lost, for example because the connection was replaced.
    Gap,
}
