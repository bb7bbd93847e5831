//! What the server sends unasked: grants and wake-ups for the waiters of this process.

use super::{Redis, lock::Run, runs::Grant};
use crate::{
    background,
    clock::Timestamp,
    id::{Id, IdMap},
    key::Key,
    mailboxes::Mailboxes,
    panics,
    primitives::{GRANT_WINDOW, HoldRequest, Notification, Request, Signal},
    renewals,
    store::Store,
    sync::{Mutex, lock},
};
use redis::{
    FromRedisValue, PushInfo, PushKind,
    aio::{AsyncPushSender, SendError},
};
use std::{
    sync::{Arc, Weak, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::Notify;

/// The end of one connection at which messages come out.
pub(super) struct Outlet {
    pub(super) mail: Arc<Mail>,
    /// Notified when the connection breaks.
    pub(super) broken: Arc<Notify>,
}

impl AsyncPushSender for Outlet {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        match info.kind {
            PushKind::Disconnection => self.broken.notify_one(),
            PushKind::Message => {
                let payload =
                    info.data.into_iter().nth(1).and_then(|data| String::from_redis_value(data).ok());
                if let Some(message) = payload.as_deref().and_then(Message::read) {
                    self.mail.deliver(message);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Where reading has ended without a word, as by the panic of a waker, nothing would be heard of the connection again.
impl Drop for Outlet {
    fn drop(&mut self) {
        self.broken.notify_one();
    }
}

/// The mailboxes of this process, and what was put into them lately.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) boxes: Mailboxes,
    /// Grants that reached their waiter, by a message or an answer: the same message may still come, when the waiter
    /// holds already and its mailbox is closed.
    delivered: Mutex<IdMap<Settled>>,
    pub(super) store: Weak<Redis>,
    /// Whether the server keeps all scripts, as far as is known.
    pub(super) knows_scripts: AtomicBool,
}

impl Mail {
    pub(super) fn new(store: Weak<Redis>) -> Self {
        Self {
            boxes: Mailboxes::default(),
            delivered: Mutex::default(),
            store,
            knows_scripts: AtomicBool::new(false),
        }
    }

    /// Messages may have been missed, and state lost: the waiters of this store ask again, one after the other, and its
    /// holds are renewed.
    pub(super) fn resync(&self) {
        self.boxes.wake_within(SPREAD);
        if let Some(store) = self.store.upgrade() {
            renewals::renew_all(&*store);
        }
    }

    /// What was granted to `id` has been told otherwise.
    pub(super) fn is_told(&self, id: Id, fence: u64) {
        remember(&mut lock(&self.delivered), id, fence);
    }

    fn deliver(&self, message: Message) {
        let store = self.store.upgrade();
        match message {
            Message::Permits(push) => self.deliver_permits(push),
            Message::Hint(push) => drop(self.boxes.deliver(push)),
            Message::Run(key, run) => drop(store.map(|store| store.begin(&key, &run))),
            Message::Lost(key, grant) => drop(store.map(|store| store.lose(&key, grant))),
            Message::Deleted(push, fence) => {
                let grant = Grant { run: push.id, fence };
                if !store.is_some_and(|store| store.deleted(&push.key, grant)) {
                    drop(self.boxes.deliver(push));
                }
            }
        }
    }

    fn deliver_permits(&self, push: Notification) {
        let (id, Signal::Granted { fence }) = (push.id, push.signal) else { return };
        let mut delivered = lock(&self.delivered);
        match self.boxes.put(push) {
            Ok(waker) => {
                remember(&mut delivered, id, fence);
                drop(delivered);
                waker.into_iter().for_each(panics::wake);
            }
            Err(push) if delivered.get(&id).is_none_or(|told| told.fence < fence) => {
                self.hand_back(push, fence);
            }
            Err(_) => {}
        }
    }

    /// Permits were granted to an attempt that does not wait any more: the next in line need not wait for the end of the
    /// grant.
    fn hand_back(&self, push: Notification, fence: u64) {
        let Some(store) = self.store.upgrade() else { return };
        let errand = self.boxes.in_flight().begin();
        background::spawn(async move {
            let lasts = Timestamp::now() + GRANT_WINDOW;
            // And nothing that the same one was granted since.
            let request = Request::Semaphore(HoldRequest::Evict { of: Some(push.id), up_to: fence });
            while store.call(&push.key, &request).await.is_err() && Timestamp::now() < lasts {
                background::sleep(Duration::from_millis(100)).await;
            }
            drop(errand);
        });
    }
}

/// A grant that its waiter knows of.
#[derive(Debug)]
struct Settled {
    fence: u64,
    until: Timestamp,
}

fn remember(delivered: &mut IdMap<Settled>, id: Id, fence: u64) {
    let now = Timestamp::now();
    if delivered.len() >= delivered.capacity() {
        delivered.retain(|_, told| told.until > now);
    }
    let told = delivered.entry(id).or_insert(Settled { fence, until: now });
    // That of an older grant may come later.
    *told = Settled { fence: told.fence.max(fence), until: now + REMEMBER };
}

/// Over how long the waiters of a process ask again, so that a server that has just come back is not overrun.
const SPREAD: Duration = Duration::from_millis(100);

/// Longer than a connection outlives the one that replaced it.
const REMEMBER: Duration = Duration::from_secs(60);

/// `<primitive> <signal> <id> <fence> <key>`, as the scripts publish it; of a `look` the microseconds until then stand in
/// the place of the fence, of a `run` its members in that of the id.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// Permits of a semaphore were granted.
    Permits(Notification),
    /// Waiters were granted a lock.
    Run(Key, Run),
    /// The hold of a run was ended by force.
    Lost(Key, Grant),
    /// The name was deleted: of a waiter, or of the run with this fence.
    Deleted(Notification, u64),
    /// It is worth asking again.
    Hint(Notification),
}

impl Message {
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let mut word = || words.next();
        let (primitive, signal, id) = (word()?, word()?, word()?);
        let (fence, key) = (word()?.parse().ok()?, Key::new(word()?));
        if (primitive, signal) == ("lock", "run") {
            return Some(Self::Run(key, Run::read(id, fence)?));
        }
        let id = Id::parse(id)?;
        let push = |signal| Notification { key: key.clone(), id, signal };
        Some(match (signal, primitive) {
            ("lost", "lock") => Self::Lost(key, Grant { run: id, fence }),
            ("granted", "semaphore") => Self::Permits(push(Signal::Granted { fence })),
            ("wake", _) => Self::Hint(push(Signal::Wake)),
            ("look", _) => Self::Hint(push(Signal::Recheck { within: Duration::from_micros(fence) })),
            ("deleted", _) => Self::Deleted(push(Signal::Deleted), fence),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::mpsc,
        task::{Context, Wake, Waker},
        thread,
    };

    /// A waker of an executor that polls in it, where an answer to something else is there.
    struct Inline(Arc<Mail>);

    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            self.0.is_told(Id::from(2), 1);
        }
    }

    #[test]
    fn who_is_woken_may_go_on_at_once() {
        let (done, all) = mpsc::channel();
        thread::spawn(move || {
            let (mail, id) = (Arc::new(Mail::new(Weak::new())), Id::from(1));
            let mut mailbox = mail.boxes.subscribe(id);
            let waker = Waker::from(Arc::new(Inline(Arc::clone(&mail))));
            assert!(mailbox.poll_next(&mut Context::from_waker(&waker)).is_pending());
            mail.deliver(Message::read(&format!("semaphore granted {id} 7 semaphore:a")).unwrap());
            done.send(lock(&mail.delivered).len()).unwrap();
        });
        assert_eq!(all.recv_timeout(locker_harness::GENEROUS), Ok(2));
    }

    #[test]
    fn messages_are_read_and_strange_ones_ignored() {
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
        for strange in [
            "",
            "lock",
            "lock run",
            "lock run x 1 k",
            "rain granted",
            "semaphore granted 1 -1 k",
            "lock run  1 k",
        ] {
            assert_eq!(Message::read(strange), None, "{strange}");
        }
    }
}
