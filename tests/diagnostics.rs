//! The events of `tracing`: each step of a hold is logged with its key and function, never with an argument.

use locker::{Error, ErrorKind, Locker};
use locker_harness::{ScriptedStore, is_renewal, until};
use std::{
    io,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, Instant},
};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ShownOnFailure<'a>(&'a Log);

impl Drop for ShownOnFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log:\n{}", self.0.text());
        }
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits for a line that contains all the words. Fails after a generous time.
    async fn wait_for(&self, words: &[&str]) -> String {
        let _shown = ShownOnFailure(self);
        let mut found = None;
        until(&format!("a line with {words:?}"), async || {
            let text = self.text();
            let line = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
            found = line.map(str::to_owned);
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

#[locker::lock_on_argument]
fn pay() -> locker::Result<()> {
    Ok(())
}

/// Returns the log of this process.
fn log() -> Log {
    static LOG: LazyLock<Log> = LazyLock::new(|| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        subscriber.with_writer(move || writer.clone()).init();
        log
    });
    LOG.clone()
}

#[tokio::test]
async fn every_step_of_a_hold_is_logged() {
    let log = log();
    let store = ScriptedStore::remote();
    let locker = Locker::builder().store(store.clone()).lease(Duration::from_secs(3)).build().await.unwrap();
    let key = "bank.withdraw";

    let guard = locker.lock(key).acquire().await.unwrap();
    let line = log.wait_for(&["DEBUG locker", "acquired", key, &format!("fence={}", guard.fence())]).await;
    assert!(!line.contains("function"), "the lock has no function: {line}");
    log.wait_for(&["DEBUG locker", "renewed", key]).await;

    let waiting = tokio::spawn(locker.lock(key).acquire());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    log.wait_for(&["DEBUG locker", "released", key]).await;
    let guard = waiting.await.unwrap().unwrap();
    log.wait_for(&["DEBUG locker", "waited", "waited=", key]).await;

    store.fail(is_renewal, Error::new(ErrorKind::Unavailable, "no renewals today").unknown());
    log.wait_for(&["WARN locker", "jeopardy", "no renewals today", key]).await;
    guard.lost().await;
    log.wait_for(&["WARN locker", "lost", "not renewed before the lease was over", key]).await;
    store.recover();
    drop(guard);

    pay().unwrap();
    log.wait_for(&["DEBUG locker", "acquired", "function=\"diagnostics::pay\""]).await;
    let _ = locker::global();
    log.wait_for(&["WARN locker", "protect this process only"]).await;
    assert_eq!(log.text().matches("protect this process only").count(), 1, "one warning is enough");
}

static LOCKER: LazyLock<Locker> = LazyLock::new(Locker::memory);

#[locker::lock_on_argument(name = "reports.nightly", lease = "500ms", locker = LOCKER)]
async fn runs_long() -> locker::Result<()> {
    std::future::pending().await
}

/// Nothing said that a function hangs and keeps its lock.
#[tokio::test]
async fn long_hold_is_warned_of_after_ten_leases() {
    let (log, lease) = (log(), Duration::from_millis(500));
    let start = move |name| LOCKER.lock(name).lease(lease);
    let bounded = start("long.bounded").max_hold(lease * 1000).acquire().await.unwrap();
    let fixed = start("long.fixed").renew(false).acquire().await.unwrap();
    let held = Instant::now();
    // On a busy machine a renewal may come too late for a short lease.
    let running = tokio::spawn(async {
        loop {
            runs_long().await.unwrap_err();
        }
    });
    let by_hand = tokio::spawn(async move {
        loop {
            start("long.by_hand").acquire().await.unwrap().lost().await;
        }
    });
    log.wait_for(&["WARN locker", "held for", "held=", "lock:long.by_hand"]).await;
    assert!(held.elapsed() >= lease * 10, "{:?}", held.elapsed());
    log.wait_for(&["WARN locker", "held for", "function=\"reports.nightly\""]).await;
    running.abort();
    by_hand.abort();
    for silent in [bounded.key(), fixed.key()] {
        let text = log.text();
        let mut warnings = text.lines().filter(|line| line.contains("held for"));
        assert!(warnings.all(|line| !line.contains(silent)), "{text}");
    }
}
