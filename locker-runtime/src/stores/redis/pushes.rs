//! What the server sends unasked: grants and wake-ups for the waiters of this process.

use super::Redis;
use crate::{
    background,
    clock::Timestamp,
    id::{Id, IdMap},
    key::Key,
    lease::Keeper,
    panics,
    primitives::{GRANT_WINDOW, Kind, Push, Signal, TOMBSTONE},
    pushes::Pushes,
    store::Store,
    sync::{Mutex, lock},
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

/// The end of one connection at which messages come out.
pub(super) struct Outlet {
    pub(super) mail: Arc<Mail>,
    /// Told when the connection breaks.
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
    pub(super) boxes: Pushes,
    /// Grants that reached their waiter, by a message or an answer: the same message may still come, when the waiter
    /// holds already and its mailbox is closed.
    delivered: Mutex<IdMap<Told>>,
    pub(super) store: Weak<Redis>,
}

impl Mail {
    pub(super) fn new(store: Weak<Redis>) -> Self {
        Self { boxes: Pushes::default(), delivered: Mutex::default(), store }
    }

    /// Messages may have been missed, and state lost: everybody who waits asks again, every hold is renewed.
    pub(super) fn ask_again(&self) {
        self.boxes.wake_all();
        Keeper::renew_all();
    }

    /// What was granted to `id` has been told otherwise.
    pub(super) fn is_told(&self, id: Id, fence: u64) {
        remember(&mut lock(&self.delivered), id, fence);
    }

    fn deliver(&self, message: Message) {
        let id = message.push.id;
        let (Some(kind), Signal::Granted { fence }) = (message.granted, message.push.signal) else {
            drop(self.boxes.deliver(message.push));
            return;
        };
        if let (Kind::Lock, Some(store)) = (kind, self.store.upgrade()) {
            store.lines.granted(&message.push.key, id);
        }
        let mut delivered = lock(&self.delivered);
        match self.boxes.put(message.push) {
            Ok(waker) => {
                remember(&mut delivered, id, fence);
                drop(delivered);
                waker.into_iter().for_each(panics::wake);
            }
            Err(push) if delivered.get(&id).is_none_or(|told| told.fence < fence) => {
                self.hand_back(kind, push);
            }
            Err(_) => {}
        }
    }

    /// Somebody was granted something who does not wait any more: the next in line need not wait for the end of the
    /// grant. What the server gave ends by itself soon; what was handed over here lasts for a lease.
    pub(super) fn hand_back(&self, kind: Kind, push: Push) {
        let Some(store) = self.store.upgrade() else { return };
        let errand = self.boxes.errands().begin();
        background::spawn(async move {
            let (fence, lasts) = match push.signal {
                Signal::Held { fence, until } => (fence, until + TOMBSTONE),
                Signal::Granted { fence } => (fence, Timestamp::now() + GRANT_WINDOW),
                _ => return,
            };
            // And nothing that the same one was granted since.
            let request = kind.evict(Some(push.id), fence);
            while store.call(&push.key, &request).await.is_err() && Timestamp::now() < lasts {
                background::sleep(Duration::from_millis(100)).await;
            }
            drop(errand);
        });
    }
}

/// A grant that its waiter knows of.
#[derive(Debug)]
struct Told {
    fence: u64,
    until: Timestamp,
}

fn remember(delivered: &mut IdMap<Told>, id: Id, fence: u64) {
    let now = Timestamp::now();
    if delivered.len() >= delivered.capacity() {
        delivered.retain(|_, told| told.until > now);
    }
    let told = delivered.entry(id).or_insert(Told { fence, until: now });
    // That of an older grant may come later.
    *told = Told { fence: told.fence.max(fence), until: now + REMEMBER };
}

/// Longer than a connection outlives the one that replaced it.
const REMEMBER: Duration = Duration::from_secs(60);

/// `<primitive> <signal> <id> <fence> <key>`, as the scripts publish it; of a `look` the microseconds until then stand in
/// the place of the fence.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    /// What was granted, if something was.
    granted: Option<Kind>,
    pub(super) push: Push,
}

impl Message {
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let mut word = || words.next();
        let primitive = word()?;
        let (signal, id, fence, key) =
            (word()?, Id::parse(word()?)?, word()?.parse().ok()?, Key::new(word()?));
        let (signal, granted) = match (signal, primitive) {
            ("granted", "lock") => (Signal::Granted { fence }, Some(Kind::Lock)),
            ("granted", "semaphore") => {
                (Signal::Granted { fence }, Some(Kind::Semaphore { size: 1, permits: 1 }))
            }
            ("wake", _) => (Signal::Wake, None),
            ("look", _) => (Signal::Look { within: Duration::from_micros(fence) }, None),
            ("deleted", _) => (Signal::Deleted, None),
            _ => return None,
        };
        Some(Self { granted, push: Push { key, id, signal } })
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
            mail.deliver(Message::read(&format!("lock granted {id} 7 lock:a")).unwrap());
            done.send(lock(&mail.delivered).len()).unwrap();
        });
        assert_eq!(all.recv_timeout(locker_harness::GENEROUS), Ok(2));
    }

    #[test]
    fn messages_are_read_and_strange_ones_ignored() {
        let id = Id::random();
        let message = Message::read(&format!("lock granted {id} 7 lock:a b")).unwrap();
        let push = Push { key: Key::new("lock:a b"), id, signal: Signal::Granted { fence: 7 } };
        assert_eq!(message, Message { granted: Some(Kind::Lock), push });
        for strange in
            ["", "lock", "lock granted", "lock granted x 1 k", "rain granted", "lock granted 1 -1 k"]
        {
            assert_eq!(Message::read(strange), None, "{strange}");
        }
    }
}
