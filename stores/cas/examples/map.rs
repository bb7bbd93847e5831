//! A backend that keeps its values in a map: the smallest one that keeps the contract. Two lockers share a lock on it.

use futures_util::future::{BoxFuture, FutureExt, ready};
use locker_cas::{
    Backend, CasStore, Inbox, Message, Opening, Outcome, Received, Result, Time, Timestamp, Version, Write,
    random_inbox,
};
use locker_runtime::Locker;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::Bound,
    sync::{Arc, Mutex},
    time::Duration,
};

type Receiver = Arc<dyn Fn(Received<'_>) + Send + Sync>;

/// What a database or a server would keep.
#[derive(Default)]
struct Shared {
    values: Mutex<BTreeMap<String, (Version, Vec<u8>)>>,
    writes: Mutex<Version>,
    receivers: Mutex<HashMap<Inbox, Option<Receiver>>>,
}

/// The map as one process uses it.
struct Map {
    shared: Arc<Shared>,
    inbox: Inbox,
}

impl Map {
    fn open(shared: &Arc<Shared>) -> Self {
        let inbox = random_inbox();
        shared.receivers.lock().unwrap().insert(inbox, None);
        Self { shared: Arc::clone(shared), inbox }
    }

    /// Replaces the value if nobody has changed it.
    fn write(&self, write: Write) -> Outcome {
        let mut values = self.shared.values.lock().unwrap();
        let found = values.get(write.key.as_str());
        let version = found.map_or(0, |(version, _)| *version);
        if version != write.expected {
            return Outcome::Differs { version, value: found.map(|(_, value)| value.clone()) };
        }
        let Some(value) = write.value else { return Outcome::Matched { version, gone: Vec::new() } };
        let mut writes = self.shared.writes.lock().unwrap();
        *writes += 1;
        values.insert(write.key.as_str().to_owned(), (*writes, value));
        let version = *writes;
        drop((values, writes));
        Outcome::Matched { version, gone: self.deliver(write.messages) }
    }

    fn deliver(&self, messages: Vec<Message>) -> Vec<Inbox> {
        let mut gone = Vec::new();
        for Message { to, text } in messages {
            // Not called under the lock: it may send messages itself.
            let receiver = self.shared.receivers.lock().unwrap().get(&to).cloned();
            match receiver {
                Some(Some(receive)) => receive(Received::Text(&text)),
                Some(None) => {}
                None => gone.push(to),
            }
        }
        gone
    }
}

impl Backend for Map {
    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>> {
        ready(Ok(self.write(write))).boxed()
    }

    fn send(&self, messages: Vec<Message>) -> BoxFuture<'_, Result<Vec<Inbox>>> {
        ready(Ok(self.deliver(messages))).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Vec<u8>)>>> {
        let values = self.shared.values.lock().unwrap();
        let start = after.filter(|after| *after >= prefix).map_or(Bound::Included(prefix), Bound::Excluded);
        let listed = values.range::<str, _>((start, Bound::Unbounded));
        let listed = listed.take_while(|(key, _)| key.starts_with(prefix)).take(limit);
        ready(Ok(listed.map(|(key, (_, value))| (key.clone(), value.clone())).collect())).boxed()
    }

    fn time(&self) -> Time {
        Time::served(Timestamp::now(), Duration::ZERO)
    }

    fn fence_floor(&self) -> u64 {
        0 // It removes no value, so the fences of all keys are in their values.
    }

    fn inbox(&self) -> Inbox {
        self.inbox
    }

    fn listen(&self, receiver: Box<dyn Fn(Received<'_>) + Send + Sync>) {
        self.shared.receivers.lock().unwrap().insert(self.inbox, Some(receiver.into()));
    }

    fn max_value_len(&self) -> usize {
        1 << 20
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        self.shared.receivers.lock().unwrap().remove(&self.inbox);
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

fn main() -> Result<()> {
    let shared = Arc::default();
    let locker =
        || Locker::builder().store(CasStore::new(Map::open(&shared), &Opening::default())?).build_blocking();
    let (one, other) = (locker()?, locker()?);
    let guard = one.lock("invoice 7").acquire_blocking()?;
    println!("one holds it with fence {}", guard.fence());
    let refused = other.lock("invoice 7").try_acquire_blocking()?.is_none();
    println!("the other has to wait: {refused}");
    guard.release_blocking()
}

#[tokio::test]
async fn keeps_the_contract() {
    use locker_cas::contract::{Party, all, gone_inboxes_are_reported};
    let shared = Arc::default();
    let [one, other, third] = [(); 3].map(|()| Party::new(Map::open(&shared)));
    all(&one, &other).await;
    gone_inboxes_are_reported(&one, third).await;
}
