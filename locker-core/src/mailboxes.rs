//! Mailboxes, through which a store sends signals to the waiters of this process.

use crate::{
    id::{Id, IdMap},
    in_flight::InFlight,
    panics,
    primitives::{Notification, Signal},
    process::Process,
    sync::{Mutex, lock},
};
#[cfg(any(feature = "_network", feature = "_control"))]
use std::time::Duration;
use std::{
    collections::hash_map::Entry,
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

const SHARDS: usize = 16;

/// The mailboxes of the waiters in this process, one per id. Cheap to clone; clones share the mailboxes.
///
/// A [`Store`](crate::store::Store) delivers the notifications of a step, or of a remote server, here. Signals are
/// hints: a lost signal delays its waiter but never breaks a guarantee.
#[derive(Clone)]
pub struct Mailboxes {
    shards: Arc<[Mutex<IdMap<Slot>>; SHARDS]>,
    in_flight: InFlight,
    process: &'static Process,
}

impl Default for Mailboxes {
    fn default() -> Self {
        Self { shards: Arc::default(), in_flight: InFlight::default(), process: Process::this() }
    }
}

#[derive(Debug, Default)]
struct Slot {
    signal: Option<Signal>,
    waker: Option<Waker>,
}

impl Mailboxes {
    /// Opens the mailbox of `id`. It closes when the returned [`Mailbox`] is dropped.
    ///
    /// A forked child gets a closed mailbox, in which there is [`Signal::Wake`]: the store then refuses its request.
    #[must_use]
    pub fn subscribe(&self, id: Id) -> Mailbox<'_> {
        if !self.process.is_this() {
            return Mailbox { mailboxes: self, id, open: false };
        }
        // Dropped after the unlock: its waker may drop a task that uses mailboxes.
        let before = lock(self.shard(id)).insert(id, Slot::default());
        drop(before);
        Mailbox { mailboxes: self, id, open: true }
    }

    /// Delivers a notification to its waiter and wakes it.
    ///
    /// # Errors
    /// Returns the notification if no waiter of this process has its id.
    pub fn deliver(&self, notification: Notification) -> Result<(), Notification> {
        self.put(notification)?.into_iter().for_each(panics::wake);
        Ok(())
    }

    /// Delivers a notification and returns the waker of its waiter, for callers that hold a lock: an executor may poll
    /// a task as soon as it is woken.
    ///
    /// # Errors
    /// Returns the notification if no waiter of this process has its id.
    pub fn put(&self, notification: Notification) -> Result<Option<Waker>, Notification> {
        let mut shard = lock(self.shard(notification.id));
        match shard.entry(notification.id) {
            Entry::Occupied(mut slot) => Ok(slot.get_mut().accept(notification.signal)),
            Entry::Vacant(_) => Err(notification),
        }
    }

    /// Makes every waiter ask again within `spread`, at times that vary by id, because signals may have been lost.
    #[cfg(any(feature = "_network", feature = "_control"))]
    pub fn wake_within(&self, spread: Duration) {
        for shard in self.shards.iter() {
            let recheck = |(id, slot): (&Id, &mut Slot)| {
                slot.accept(Signal::Recheck { within: spread / 1024 * id.jitter(1024) })
            };
            let wakers: Vec<_> = lock(shard).iter_mut().filter_map(recheck).collect();
            wakers.into_iter().for_each(panics::wake);
        }
    }

    /// Revokes a hand-off that the waiter `id` has not read yet and makes it ask again. Returns `false` if there is
    /// none.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn take_back(&self, id: Id) -> bool {
        let mut shard = lock(self.shard(id));
        let slot = shard.get_mut(&id).filter(|slot| matches!(slot.signal, Some(Signal::HandedOff { .. })));
        slot.map(|slot| slot.signal = Some(Signal::Wake)).is_some()
    }

    /// Returns `true` if the mailbox of `id` is open.
    #[must_use]
    pub fn is_open(&self, id: Id) -> bool {
        lock(self.shard(id)).contains_key(&id)
    }

    /// Returns the number of open mailboxes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Returns `true` if no mailbox is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).is_empty())
    }

    /// The calls in flight that return unclaimed grants.
    #[must_use]
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    fn shard(&self, id: Id) -> &Mutex<IdMap<Slot>> {
        &self.shards[id.shard(SHARDS)]
    }
}

impl Slot {
    /// Stores `signal` and returns the waker, unless the unread signal ranks higher.
    ///
    /// A wake-up makes a recheck unnecessary, as an earlier recheck does a later one. A grant makes asking unnecessary,
    /// and a later grant replaces an earlier one.
    fn accept(&mut self, signal: Signal) -> Option<Waker> {
        let rank = |signal: &Signal| match *signal {
            Signal::Recheck { within } => {
                (0, u64::MAX - u64::try_from(within.as_micros()).unwrap_or(u64::MAX))
            }
            Signal::Wake => (1, 0),
            Signal::Granted { fence } | Signal::HandedOff { fence, .. } => (2, fence),
            Signal::Deleted => (3, 0),
        };
        if self.signal.as_ref().is_none_or(|unread| rank(unread) <= rank(&signal)) {
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

/// The open mailbox of one waiter, created by [`Mailboxes::subscribe`]. It closes when dropped.
#[derive(Debug)]
pub struct Mailbox<'a> {
    mailboxes: &'a Mailboxes,
    id: Id,
    /// `false` after a hand-off was read: no signal follows it.
    open: bool,
}

impl Mailbox<'_> {
    /// Waits for the next signal. Of several unread signals it returns only the one that ranks highest.
    ///
    /// # Cancel safety
    /// Cancel safe: a signal stays in the mailbox until it is returned.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Opens the mailbox again after a hand-off has closed it. Call it before asking the store again.
    pub fn reopen(&mut self) {
        lock(self.mailboxes.shard(self.id)).entry(self.id).or_default();
        self.open = true;
    }

    /// Closes the mailbox: later notifications for its id are refused.
    pub fn close(&mut self) {
        if !std::mem::take(&mut self.open) || !self.mailboxes.process.is_this() {
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

    /// Returns the next signal, in a forked child at once a wake-up.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        if !self.mailboxes.process.is_this() {
            return Poll::Ready(Signal::Wake);
        }
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
    fn higher_ranked_signal_is_kept() {
        let (recheck, granted) = (Signal::Recheck { within: Duration::ZERO }, Signal::Granted { fence: 1 });
        let handed_off = Signal::HandedOff { fence: 2, until: Timestamp::NEVER };
        let never = Signal::Recheck { within: Duration::MAX };
        for (signals, expected) in [
            ([recheck, Signal::Wake], Signal::Wake),
            ([Signal::Wake, recheck], Signal::Wake),
            ([recheck, never], recheck),
            ([never, recheck], recheck),
            ([granted, recheck], granted),
            ([granted, Signal::Wake], granted),
            ([Signal::Wake, granted], granted),
            ([granted, Signal::Deleted], Signal::Deleted),
            ([granted, handed_off], handed_off),
            ([handed_off, granted], handed_off),
        ] {
            let (mailboxes, id) = (Mailboxes::default(), Id::random());
            let mut mailbox = mailboxes.subscribe(id);
            for signal in signals {
                mailboxes.deliver(Notification { key: Key::new("a"), id, signal }).unwrap();
            }
            assert_eq!(block_on(mailbox.next()), expected, "{signals:?}");
        }
    }

    /// A waker may be the last reference to its task; dropping it then drops all that the task owns.
    #[test]
    fn dropped_waker_may_use_the_mailboxes() {
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
