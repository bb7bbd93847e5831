//! A panic in a subscriber, a store or a waker of the application does not harm other callers.

use locker::{Error, ErrorKind, Guard, Key, Locker, lock_on_argument, stores::Memory};
use locker_core::{
    mailboxes::Mailboxes,
    primitives::{HoldRequest, Request},
    store::{Calling, Store},
};
use locker_harness::{in_time, until};
use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc, LazyLock, Once,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake},
    time::{Duration, Instant},
};
use tracing_subscriber::{Layer, layer::SubscriberExt, util::SubscriberInitExt};

const SHORT: Duration = Duration::from_millis(150);

/// Panics at every event of this library.
struct Unwritable;

impl<S: tracing::Subscriber> Layer<S> for Unwritable {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        assert_ne!(event.metadata().target(), "locker", "the log cannot be written");
    }
}

/// Prints panics without a backtrace, which would take longer than a lease of these tests.
fn print_panics_in_short() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))));
}

fn make_logging_panic() {
    static ONCE: Once = Once::new();
    print_panics_in_short();
    ONCE.call_once(|| tracing_subscriber::registry().with(Unwritable).init());
}

/// The embedded store, with renewals that panic and releases that fail.
#[derive(Debug)]
struct Faulty {
    memory: Memory,
    renewals_that_panic: AtomicUsize,
    releases_that_fail: AtomicUsize,
}

impl Faulty {
    async fn locker(renewals_that_panic: usize, releases_that_fail: usize) -> Locker {
        print_panics_in_short();
        let (renewals_that_panic, releases_that_fail) =
            (renewals_that_panic.into(), releases_that_fail.into());
        let store = Self { memory: Memory::new(), renewals_that_panic, releases_that_fail };
        Locker::builder().store(store).lease(SHORT).build().await.unwrap()
    }
}

fn once_less(count: &AtomicUsize) -> bool {
    count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok()
}

impl Store for Faulty {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        match request {
            Request::Lock(HoldRequest::Renew { .. }) if once_less(&self.renewals_that_panic) => {
                panic!("a bad renewal")
            }
            Request::Lock(HoldRequest::Release { .. }) if once_less(&self.releases_that_fail) => {
                Calling::answered(Err(Error::new(ErrorKind::Misused, "no release")))
            }
            _ => self.memory.call(key, request),
        }
    }

    fn mailboxes(&self) -> &Mailboxes {
        self.memory.mailboxes()
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        None
    }
}

async fn is_renewed(guard: &Guard) {
    let started = Instant::now();
    until("three leases have passed", async || started.elapsed() > SHORT * 3).await;
    assert!(guard.is_held());
}

async fn another_is_renewed() {
    let guard = Locker::memory().lock("another").lease(SHORT).acquire().await.unwrap();
    is_renewed(&guard).await;
}

static LOCKER: LazyLock<Locker> = LazyLock::new(Locker::memory);

#[lock_on_argument(lease = "50ms", max_hold = "50ms", locker = LOCKER)]
async fn endless() -> Result<(), Error> {
    pending().await
}

#[tokio::test]
async fn panicking_log_hides_no_loss() {
    make_logging_panic();
    let lost = in_time("the end of the body", endless()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    another_is_renewed().await;
}

#[lock_on_argument(args(), locker = locker)]
fn returns_seven(locker: &Locker) -> Result<u8, Error> {
    Ok(7)
}

#[tokio::test]
async fn panicking_log_changes_no_result() {
    make_logging_panic();
    let locker = Faulty::locker(0, 1).await;
    assert_eq!(returns_seven(&locker).unwrap(), 7);
}

/// It harms no other hold.
#[tokio::test]
async fn panicking_renewal_is_tried_again() {
    let locker = Faulty::locker(1, 0).await;
    let guard = locker.lock("bad").acquire().await.unwrap();
    is_renewed(&guard).await;
    another_is_renewed().await;
}

#[tokio::test]
async fn hold_is_lost_if_all_renewals_panic() {
    let locker = Faulty::locker(usize::MAX, 0).await;
    let guard = locker.lock("bad").acquire().await.unwrap();
    in_time("the loss", guard.lost()).await;
    another_is_renewed().await;
}

/// A waker that panics and counts its panics.
#[derive(Default)]
struct Dead(AtomicUsize);

impl Wake for Dead {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        panic!("this executor is gone");
    }
}

/// Polls a future that waits, and returns when its waker has panicked.
async fn panics_when_woken<F: Future>(mut future: Pin<Box<F>>) {
    print_panics_in_short();
    let dead = Arc::new(Dead::default());
    assert!(future.as_mut().poll(&mut Context::from_waker(&dead.clone().into())).is_pending());
    until("the waker is called", async || dead.0.load(SeqCst) > 0).await;
}

#[tokio::test]
async fn panicking_waker_stops_no_timer() {
    let locker = Locker::memory();
    let held = locker.lock("a").acquire().await.unwrap();
    let wait = |time| Box::pin(locker.lock("a").timeout(time).acquire());
    // A near timer and a far one.
    for time in [SHORT / 4, SHORT * 2] {
        panics_when_woken(wait(time)).await;
        for time in [SHORT / 4, SHORT * 2] {
            let waited = in_time("the time-out", wait(time)).await;
            assert_eq!(waited.unwrap_err().kind(), ErrorKind::TimedOut);
        }
    }
    held.release().await.unwrap();
}

#[tokio::test]
async fn panicking_waker_stops_no_expiry() {
    let locker = Locker::memory();
    let held_for = async |time| locker.lock("a").lease(time).renew(false).acquire().await.unwrap();
    let held = held_for(SHORT).await;
    panics_when_woken(Box::pin(locker.lock("a").acquire())).await;
    drop(held);
    let held = held_for(SHORT).await;
    in_time("the end of the lease", locker.lock("a").acquire()).await.unwrap().release().await.unwrap();
    drop(held);
}

#[tokio::test]
async fn panicking_waker_breaks_no_release_or_loss() {
    let locker = Locker::memory();
    let held = locker.lock("a").acquire().await.unwrap();
    let mut waiting = Box::pin(locker.lock("a").acquire());
    let dead = Arc::new(Dead::default());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&dead.clone().into())).is_pending());
    held.release().await.unwrap();
    assert_eq!(dead.0.load(SeqCst), 1);

    let losing = locker.lock("b").lease(SHORT).max_hold(SHORT).acquire().await.unwrap();
    panics_when_woken(Box::pin(losing.lost())).await;
    another_is_renewed().await;
}
