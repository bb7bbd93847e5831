//! What lockers tell their stores about functions and holders.

use locker::{Error, ErrorKind, Filter, FunctionSource, Locker, lock_on_argument, stores::Memory};
use locker_harness::{ScriptedStore, Step, until};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Returns a locker on a store with this script for its descriptions, and the number of them.
async fn told(mut step: impl FnMut(u64) -> Step<()> + Send + 'static) -> (Locker, Arc<AtomicU64>) {
    let (store, calls) = (ScriptedStore::local(), Arc::new(AtomicU64::new(0)));
    let counted = calls.clone();
    store.on_describe(move || step(counted.fetch_add(1, Ordering::Relaxed)));
    (Locker::builder().store(store).note("till 7").build().await.unwrap(), calls)
}

#[lock_on_argument(expr = 60, name = "bank.withdraw", args(card), locker = locker)]
async fn withdraw<T>(locker: &Locker, card: u64, body: impl Future<Output = T>) -> locker::Result<T> {
    let _ = card;
    Ok(body.await)
}

#[lock_on_argument(expr = 60, name = "bank.withdraw", args(card), locker = locker)]
async fn also_withdraw<T>(locker: &Locker, card: u64, body: impl Future<Output = T>) -> locker::Result<T> {
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

#[tokio::test]
async fn functions_that_share_a_name_are_all_named() {
    let locker = Locker::memory();
    named(&locker).await;
    let all = until("both functions", async || {
        let all = function(&locker).await.map(|function| function.to_string()).unwrap_or_default();
        all.starts_with("bank.withdraw (") && all.matches(&format!("{}:", file!())).count() == 2
    });
    also_withdraw(&locker, 1, all).await.unwrap();
}

/// A locker knows its own note, which is told to the store in the background.
#[tokio::test]
async fn own_note_is_there_at_once() {
    let locker = Locker::memory();
    let guard = locker.lock("a").acquire().await.unwrap();
    let (admin, key) = (locker.admin(), locker.admin().key("lock", "a"));
    let note = admin.inspect(&key).await.unwrap().unwrap().holders[0].note.clone();
    assert!(note.is_some_and(|note| note.ends_with(&format!(":{}", std::process::id()))));
    let explained = admin.explain(&key).await.unwrap();
    assert!(explained.holders()[0].age.is_some(), "{explained}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn descriptions_survive_an_outage() {
    let (locker, calls) = told(|earlier| match earlier {
        0..3 => Step::Answer(Err(Error::new(ErrorKind::Unavailable, "an outage"))),
        _ => Step::CarryOut,
    })
    .await;
    named(&locker).await;
    assert!(calls.load(Ordering::Relaxed) > 3);
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
    let ((locker, calls), started) = (told(|_| Step::Hang).await, Instant::now());
    for card in 0..100 {
        withdraw(&locker, card, async {}).await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    until("the call", async || calls.load(Ordering::Relaxed) == 1).await;
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
