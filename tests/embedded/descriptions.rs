//! What lockers tell their stores about functions and holders.

use futures_util::future::pending;
use locker::{ErrorKind, Filter, FunctionSource, Key, Locker, lock_on_argument, stores::Memory};
use locker_core::{
    mailboxes::Mailboxes,
    primitives::Request,
    store::{Answering, Calling, Description, KeyPage, Store},
};
use locker_harness::until;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// What a store does when it is told something.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// The first calls fail.
    Of(u64),
    /// No call ever ends.
    ForEver,
}

/// A store whose descriptions suffer from an outage, and whose other calls do not.
#[derive(Clone, Debug)]
struct Told {
    store: Memory,
    outage: Outage,
    calls: Arc<AtomicU64>,
}

impl Told {
    fn new(outage: Outage) -> Self {
        Self { store: Memory::new(), outage, calls: Arc::default() }
    }
}

impl Store for Told {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        self.store.call(key, request)
    }

    fn page<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answering<'a, KeyPage> {
        self.store.page(prefix, after, limit)
    }

    fn describe<'a>(&'a self, prefix: &'a str, descriptions: &'a [Description]) -> Answering<'a, ()> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.outage {
            Outage::ForEver => Box::pin(pending()),
            Outage::Of(failures) if calls < failures => {
                Box::pin(async { Err(locker::Error::new(ErrorKind::Unavailable, "an outage")) })
            }
            Outage::Of(_) => self.store.describe(prefix, descriptions),
        }
    }

    fn descriptions<'a>(
        &'a self,
        prefix: &'a str,
        subjects: &'a [String],
    ) -> Answering<'a, Vec<Option<String>>> {
        self.store.descriptions(prefix, subjects)
    }

    fn mailboxes(&self) -> &Mailboxes {
        self.store.mailboxes()
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        self.store.waiter_ttl()
    }
}

#[lock_on_argument(expr = 60, name = "bank.withdraw", args(card), locker = locker)]
async fn withdraw<T>(locker: &Locker, card: u64, body: impl Future<Output = T>) -> locker::Result<T> {
    let _ = card;
    Ok(body.await)
}

async fn function(locker: &Locker) -> Option<FunctionSource> {
    let page = locker.admin().page(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(page.keys.len(), 1);
    page.keys.into_iter().next().unwrap().function
}

/// Returns when the list of keys names the function, while it holds its lock.
async fn named(locker: &Locker) {
    let body = until("the name of the function", async || {
        function(locker).await.is_some_and(|function| function.name == "bank.withdraw")
    });
    withdraw(locker, 1, body).await.unwrap();
}

async fn on(store: Told) -> Locker {
    Locker::builder().store(store).note("till 7").build().await.unwrap()
}

#[tokio::test]
async fn descriptions_survive_an_outage() {
    let told = Told::new(Outage::Of(3));
    let locker = on(told.clone()).await;
    named(&locker).await;
    assert!(told.calls.load(Ordering::Relaxed) > 3);
    let (admin, _guard) = (locker.admin(), locker.lock("a").acquire().await.unwrap());
    until("the note", async || {
        let seen = admin.inspect(&admin.key("lock", "a")).await.unwrap().unwrap();
        seen.holders[0].note.as_deref() == Some("till 7")
    })
    .await;
}

/// No call waits for a store that does not listen.
#[tokio::test]
async fn silent_store_delays_no_call() {
    let told = Told::new(Outage::ForEver);
    let (locker, started) = (on(told.clone()).await, Instant::now());
    for card in 0..100 {
        withdraw(&locker, card, async {}).await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    until("the call", async || told.calls.load(Ordering::Relaxed) == 1).await;
    assert_eq!(withdraw(&locker, 1, async { function(&locker).await }).await.unwrap(), None);
}

/// One function of one process uses two stores, and more lockers than a function remembers.
#[tokio::test]
async fn every_store_learns_of_a_function() {
    let lockers: Vec<Locker> = (0..100).map(|_| Locker::memory()).collect();
    for locker in lockers.iter().chain(&lockers) {
        named(locker).await;
    }
}

#[tokio::test]
async fn bad_notes_are_refused() {
    for note in ["a".repeat(121), "a\nb".to_owned()] {
        let error = Locker::builder().store(Memory::new()).note(note).build().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Misused && error.message().contains("note"), "{error}");
    }
}
