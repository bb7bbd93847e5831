//! Signals on their way to the waiters of this process.

use crate::{
    id::{Id, IdMap},
    in_flight::InFlight,
    panics,
    primitives::{Notification, Signal},
    sync::{Mutex, lock},
};
#[cfg(feature = "redis")]
use std::time::Duration;
use std::{
    collections::hash_map::Entry,
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

const SHARDS: usize = 16;

/// The mailboxes of everybody who waits in this process, one per id. Cheap to clone.
///
/// A store delivers here what a step (or a message from a server) says. Signals are hints: one that is not
/// delivered costs its receiver time, never correctness.
#[derive(Clone, Default)]
pub struct Mailboxes {
    shards: Arc<[Mutex<IdMap<Slot>>; SHARDS]>,
    in_flight: InFlight,
}

#[derive(Debug, Default)]
struct Slot {
    signal: Option<Signal>,
    waker: Option<Waker>,
}

impl Mailboxes {
    /// Opens the mailbox of `id`; it closes when the subscription is dropped.
    #[must_use]
    pub fn subscribe(&self, id: Id) -> Mailbox<'_> {
        // Dropped when nothing is locked: with its waker may go a task that uses mailboxes.
        let before = lock(self.shard(id)).insert(id, Slot::default());
        drop(before);
        Mailbox { mailboxes: self, id, open: true }
    }

    /// Wakes whom the push is for.
    ///
    /// # Errors
    /// Hands the push back when nobody here waits under that id any more.
    pub fn deliver(&self, push: Notification) -> Result<(), Notification> {
        self.put(push)?.into_iter().for_each(panics::wake);
        Ok(())
    }

    /// The same for a caller who must not wake anybody yet: an executor may poll who is woken there and then.
    pub(crate) fn put(&self, push: Notification) -> Result<Option<Waker>, Notification> {
        let mut shard = lock(self.shard(push.id));
        match shard.entry(push.id) {
            Entry::Occupied(mut mailbox) => Ok(mailbox.get_mut().put(push.signal)),
            Entry::Vacant(_) => Err(push),
        }
    }

    /// Has every waiter ask again within `spread`, each at a time of its own: signals may have been missed.
    #[cfg(feature = "redis")]
    pub(crate) fn wake_within(&self, spread: Duration) {
        for shard in self.shards.iter() {
            let put = |(id, mailbox): (&Id, &mut Slot)| {
                mailbox.put(Signal::Recheck { within: spread / 1024 * id.jitter(1024) })
            };
            let wakers: Vec<_> = lock(shard).iter_mut().filter_map(put).collect();
            wakers.into_iter().for_each(panics::wake);
        }
    }

    /// Has `id` ask again instead of holding, if it has not taken the lock that was passed on to it; says whether it
    /// had not.
    #[cfg(feature = "redis")]
    pub(crate) fn take_back(&self, id: Id) -> bool {
        let mut shard = lock(self.shard(id));
        let mailbox =
            shard.get_mut(&id).filter(|mailbox| matches!(mailbox.signal, Some(Signal::HandedOff { .. })));
        mailbox.map(|mailbox| mailbox.signal = Some(Signal::Wake)).is_some()
    }

    /// Whether somebody here waits under `id`.
    #[must_use]
    pub fn is_open(&self, id: Id) -> bool {
        lock(self.shard(id)).contains_key(&id)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).is_empty())
    }

    /// What is handed back because nobody waited for it.
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    fn shard(&self, id: Id) -> &Mutex<IdMap<Slot>> {
        &self.shards[id.shard(SHARDS)]
    }
}

impl Slot {
    /// What says more stays: asking again answers whatever a look would, a grant whatever asking would, and a later
    /// grant whatever an earlier one would.
    fn put(&mut self, signal: Signal) -> Option<Waker> {
        let weight = |signal: &Signal| match *signal {
            Signal::Recheck { .. } => (0, 0),
            Signal::Wake => (1, 0),
            Signal::Granted { fence } | Signal::HandedOff { fence, .. } => (2, fence),
            Signal::Deleted => (3, 0),
        };
        if self.signal.as_ref().is_none_or(|there| weight(there) <= weight(&signal)) {
            self.signal = Some(signal);
        }
        self.waker.take()
    }
}

impl fmt::Debug for Mailboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailboxes").field("waiting", &self.len()).finish()
    }
}

/// An open mailbox.
#[derive(Debug)]
pub struct Mailbox<'a> {
    mailboxes: &'a Mailboxes,
    id: Id,
    /// Closed once its owner was told that it holds: nothing comes after that.
    open: bool,
}

impl Mailbox<'_> {
    /// The next signal.
    ///
    /// # Cancel safety
    /// Cancel safe: a signal is taken only when it is returned.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Opens a mailbox that was closed because its owner held: to be done before asking again.
    pub(crate) fn reopen(&mut self) {
        lock(self.mailboxes.shard(self.id)).entry(self.id).or_default();
        self.open = true;
    }

    /// From here on nobody waits under this id.
    pub(crate) fn close(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let mut shard = lock(self.mailboxes.shard(self.id));
        let mailbox = shard.remove(&self.id);
        if let Some(capacity) = crate::capacity::shrunk(shard.len(), shard.capacity()) {
            shard.shrink_to(capacity);
        }
        drop(shard);
        drop(mailbox);
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        let mut shard = lock(self.mailboxes.shard(self.id));
        let mailbox = shard.entry(self.id).or_default();
        if let Some(signal) = mailbox.signal.take() {
            let mut closed = None;
            if matches!(signal, Signal::HandedOff { .. }) {
                closed = shard.remove(&self.id);
                self.open = false;
            }
            drop(shard);
            drop(closed);
            return Poll::Ready(signal);
        }
        let is_known = mailbox.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        let before = if is_known { None } else { mailbox.waker.replace(context.waker().clone()) };
        drop(shard);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Mailbox<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{blocking::block_on, clock::Timestamp, key::Key};
    use std::time::Duration;

    #[test]
    fn a_signal_that_says_less_replaces_none_that_says_more() {
        let (look, granted) = (Signal::Recheck { within: Duration::ZERO }, Signal::Granted { fence: 1 });
        let inherited = Signal::HandedOff { fence: 2, until: Timestamp::NEVER };
        for (signals, heard) in [
            ([look, Signal::Wake], Signal::Wake),
            ([Signal::Wake, look], Signal::Wake),
            ([granted, look], granted),
            ([granted, Signal::Wake], granted),
            ([Signal::Wake, granted], granted),
            ([granted, Signal::Deleted], Signal::Deleted),
            ([granted, inherited], inherited),
            ([inherited, granted], inherited),
        ] {
            let (mailboxes, id) = (Mailboxes::default(), Id::random());
            let mut mailbox = mailboxes.subscribe(id);
            for signal in signals {
                mailboxes.deliver(Notification { key: Key::new("a"), id, signal }).unwrap();
            }
            assert_eq!(block_on(mailbox.next()), heard, "{signals:?}");
        }
    }

    /// The last one to know a task drops it, and what it waits for, with the waker.
    #[test]
    fn a_waker_that_is_dropped_may_use_the_mailboxes() {
        use std::{sync::mpsc, task::Wake, thread};
        struct Last(Mailboxes, Id);
        impl Wake for Last {
            fn wake(self: Arc<Self>) {}
        }
        impl Drop for Last {
            fn drop(&mut self) {
                assert!(self.0.is_open(self.1));
            }
        }
        let (done, all) = mpsc::channel();
        thread::spawn(move || {
            let (mailboxes, id) = (Mailboxes::default(), Id::random());
            let mut mailbox = mailboxes.subscribe(id);
            let waker = Waker::from(Arc::new(Last(mailboxes.clone(), id)));
            assert!(mailbox.poll_next(&mut Context::from_waker(&waker)).is_pending());
            drop(waker);
            assert!(mailbox.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
            done.send(()).unwrap();
        });
        assert_eq!(all.recv_timeout(locker_harness::GENEROUS), Ok(()));
    }
}
