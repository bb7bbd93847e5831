//! The receiver of the server's push messages: grants and wake-ups for the waiters of this process.

use super::{
    codec::lock::{Grant, Run},
    slots::Owner,
    watchers::Watchers,
};
use locker_core::{
    id::Id,
    key::Key,
    mailboxes::Mailboxes,
    primitives::{Notification, Signal},
    renewals,
    store::Store,
};
use redis::{
    FromRedisValue, PushInfo, PushKind,
    aio::{AsyncPushSender, SendError},
};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::sync::Notify;

/// The sink of one connection for push messages.
pub(super) struct PushSink {
    receiver: Arc<PushReceiver>,
    /// Notified when the connection breaks.
    broken: Arc<Notify>,
    /// The node of a cluster. Its nodes pass messages on to each other, so each message comes over every connection: it
    /// counts over that to the owner of its key.
    node: Option<Owner>,
}

impl PushSink {
    pub(super) fn new(receiver: &Arc<PushReceiver>, broken: &Arc<Notify>, node: Option<&Owner>) -> Self {
        Self { receiver: Arc::clone(receiver), broken: Arc::clone(broken), node: node.cloned() }
    }
}

impl AsyncPushSender for PushSink {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        match info.kind {
            PushKind::Disconnection => self.broken.notify_one(),
            PushKind::Message => {
                let payload =
                    info.data.into_iter().nth(1).and_then(|data| String::from_redis_value(data).ok());
                let message = payload.as_deref().and_then(Message::read);
                let counts = |message: &Message| {
                    self.node.as_ref().is_none_or(|node| node.has(message.key().as_str()))
                };
                if let Some(message) = message.filter(counts) {
                    self.receiver.deliver(message);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reports the end of a connection also if its reader has stopped without a message, for example by a waker's panic.
impl Drop for PushSink {
    fn drop(&mut self) {
        self.broken.notify_one();
    }
}

/// The store of a receiver, which handles the messages about runs.
pub(super) trait RunMessages: Store {
    /// Handles the grant of a lock to a run.
    fn run_granted(&self, key: &Key, run: &Run);

    /// Handles the message that a run was ended.
    fn run_lost(&self, key: &Key, grant: Grant);

    /// Handles a change of the server, which may not know the runs.
    fn runs_doubted(&self);

    /// Handles the message that the key of a run was deleted. Returns whether the run was known.
    fn run_deleted(&self, key: &Key, grant: Grant) -> bool;
}

/// The receiver of push messages, with the mailboxes of this process.
#[derive(Debug)]
pub(super) struct PushReceiver {
    pub(super) mailboxes: Mailboxes,
    pub(super) watchers: Watchers,
    store: Weak<dyn RunMessages>,
}

impl PushReceiver {
    pub(super) fn new(store: Weak<dyn RunMessages>) -> Self {
        Self { mailboxes: Mailboxes::default(), watchers: Watchers::default(), store }
    }

    /// Makes the waiters of this store send their requests again, at different times.
    pub(super) fn wake_waiters(&self) {
        self.mailboxes.wake_within(SPREAD);
    }

    /// Wakes the waiters of this store and requests the renewal of its holds. To be called after messages or state may
    /// have been lost.
    pub(super) fn resync(&self) {
        self.wake_waiters();
        if let Some(store) = self.store.upgrade() {
            renewals::renew_all(&*store);
        }
    }

    /// Requests the renewal of the holds of this store, which are in jeopardy until then: another server is the master.
    /// Members of runs that have not held yet ask it again.
    pub(super) fn doubt_holds(&self) {
        if let Some(store) = self.store.upgrade() {
            store.runs_doubted();
            renewals::doubt_all(&*store);
        }
    }

    fn deliver(&self, message: Message) {
        let store = self.store.upgrade();
        match message {
            // A waiter that has given up has no mailbox, and its cancel is on its way. A message alone ends nothing.
            Message::Permits(notification) | Message::Hint(notification) => {
                drop(self.mailboxes.deliver(notification));
            }
            Message::All(key, signal) => {
                for id in self.watchers.told(&key, signal) {
                    drop(self.mailboxes.deliver(Notification { key: key.clone(), id, signal }));
                }
            }
            Message::Run(key, run) => drop(store.map(|store| store.run_granted(&key, &run))),
            Message::Lost(key, grant) => drop(store.map(|store| store.run_lost(&key, grant))),
            Message::Deleted(notification, fence) => {
                let grant = Grant { run: notification.id, fence };
                if !store.is_some_and(|store| store.run_deleted(&notification.key, grant)) {
                    drop(self.mailboxes.deliver(notification));
                }
            }
        }
    }
}

/// The period in which all waiters of a process send their requests again, so that they do not overload a server that
/// has just restarted.
const SPREAD: Duration = Duration::from_millis(100);

/// A message as the scripts publish it: `<primitive> <signal> <id> <fence> <key>`. A `look` has the microseconds until
/// the recheck in place of the fence. A `run` has its members in place of the id, and a message for all waiters of the
/// process at the key has `-`.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// Permits of a semaphore were granted.
    Permits(Notification),
    /// Waiters were granted a lock.
    Run(Key, Run),
    /// An eviction has ended a run.
    Lost(Key, Grant),
    /// The key of a waiter, or of the run with this fence, was deleted.
    Deleted(Notification, u64),
    /// A waiter should send its request again.
    Hint(Notification),
    /// The same, or a deletion, for all waiters of this process at a key.
    All(Key, Signal),
}

impl Message {
    fn key(&self) -> &Key {
        match self {
            Self::Run(key, _) | Self::Lost(key, _) | Self::All(key, _) => key,
            Self::Permits(notification) | Self::Deleted(notification, _) | Self::Hint(notification) => {
                &notification.key
            }
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let mut word = || words.next();
        let (primitive, signal, id) = (word()?, word()?, word()?);
        let (fence, key) = (word()?.parse().ok()?, Key::new(word()?));
        if (primitive, signal) == ("lock", "run") {
            return Some(Self::Run(key, Run::read(id, fence)?));
        }
        match (signal, id) {
            ("wake", "-") => return Some(Self::All(key, Signal::Wake)),
            ("deleted", "-") => return Some(Self::All(key, Signal::Deleted)),
            _ => {}
        }
        let id = Id::parse(id)?;
        let notification = |signal| Notification { key: key.clone(), id, signal };
        Some(match (signal, primitive) {
            ("lost", "lock") => Self::Lost(key, Grant { run: id, fence }),
            ("granted", "semaphore") => Self::Permits(notification(Signal::Granted { fence })),
            ("wake", _) => Self::Hint(notification(Signal::Wake)),
            ("look", _) => Self::Hint(notification(Signal::Recheck { within: Duration::from_micros(fence) })),
            ("deleted", _) => Self::Deleted(notification(Signal::Deleted), fence),
            _ => return None,
        })
    }
}

/// A store without runs.
#[cfg(any(test, feature = "_fuzz"))]
impl RunMessages for locker_core::store::memory::Memory {
    fn run_granted(&self, _: &Key, _: &Run) {}

    fn run_lost(&self, _: &Key, _: Grant) {}

    fn runs_doubted(&self) {}

    fn run_deleted(&self, _: &Key, _: Grant) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{NOBODY, Owners, slot_of};
    use locker_core::store::memory::Memory;
    use redis::Value;
    use std::{
        sync::mpsc,
        task::{Context, Wake, Waker},
        thread,
    };

    /// A waker of an executor that polls inside of it, and finds the reply to another call.
    struct Inline(Arc<PushReceiver>);

    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            assert!(self.0.mailboxes.is_open(Id::from(1)));
        }
    }

    #[test]
    fn waker_may_use_the_receiver() {
        let (done, all) = mpsc::channel();
        thread::spawn(move || {
            let store = Weak::<Memory>::new();
            let (receiver, id) = (Arc::new(PushReceiver::new(store)), Id::from(1));
            let mut mailbox = receiver.mailboxes.subscribe(id);
            let waker = Waker::from(Arc::new(Inline(Arc::clone(&receiver))));
            assert!(mailbox.poll_next(&mut Context::from_waker(&waker)).is_pending());
            receiver.deliver(Message::read(&format!("semaphore granted {id} 7 semaphore:a")).unwrap());
            done.send(()).unwrap();
        });
        assert_eq!(all.recv_timeout(locker_harness::GENEROUS), Ok(()));
    }

    /// Each message comes over the connections to all masters of a cluster.
    #[test]
    fn message_counts_over_the_connection_to_the_owner() {
        let (receiver, owners) =
            (Arc::new(PushReceiver::new(Weak::<Memory>::new())), Arc::<Owners>::default());
        let sink = |number| PushSink {
            receiver: Arc::clone(&receiver),
            broken: Arc::default(),
            node: Some(Owner { id: "".into(), number, owners: Arc::clone(&owners) }),
        };
        let (sinks, id) = ([sink(1), sink(2)], Id::from(1));
        let heard_by = |number: usize| {
            let mut mailbox = receiver.mailboxes.subscribe(id);
            let payload = format!("semaphore wake {id} 0 semaphore:a");
            let data =
                ["channel".to_owned(), payload].map(|text| Value::BulkString(text.into_bytes())).into();
            sinks[number].send(PushInfo { kind: PushKind::Message, data }).unwrap();
            mailbox.poll_next(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        for (owner, heard) in [(NOBODY, [false, false]), (1, [true, false]), (2, [false, true])] {
            owners.set(slot_of("semaphore:a"), owner);
            assert_eq!([heard_by(0), heard_by(1)], heard, "{owner}");
        }
    }

    /// Any client that may publish can send such a message.
    #[test]
    fn run_may_have_the_greatest_fence() {
        let (id, other) = (Id::from(1), Id::from(2));
        let message = Message::read(&format!("lock run {id}:5,{other}:5 {} lock:a", u64::MAX));
        let Some(Message::Run(_, run)) = message else { panic!("{message:?}") };
        let fences: Vec<_> = run.members().map(|member| member.fence).collect();
        assert_eq!(fences, [u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn receiver_ignores_unknown_messages() {
        let id = Id::random();
        let message = Message::read(&format!("semaphore granted {id} 7 semaphore:a b"));
        let key = Key::new("semaphore:a b");
        assert_eq!(
            message,
            Some(Message::Permits(Notification { key, id, signal: Signal::Granted { fence: 7 } }))
        );
        let other = Id::random();
        let message = Message::read(&format!("lock run {id}:5,{other}:60 8 lock:a b"));
        let Some(Message::Run(key, run)) = message else { panic!("{message:?}") };
        let members: Vec<_> = run.members().map(|member| (member.id, member.fence, member.lease)).collect();
        let milliseconds = Duration::from_millis;
        assert_eq!(members, [(id, 7, milliseconds(5)), (other, 8, milliseconds(60))]);
        assert_eq!(key, Key::new("lock:a b"));
        let run = run.id().to_string();
        assert_eq!(
            (&run[..12], &run[12..13], &run[13..]),
            (&id.to_string()[..12], "8", &id.to_string()[13..])
        );
        for unknown in [
            "",
            "lock",
            "lock run",
            "lock run x 1 k",
            "rain granted",
            "semaphore granted 1 -1 k",
            "lock run  1 k",
        ] {
            assert_eq!(Message::read(unknown), None, "{unknown}");
        }
    }
}
