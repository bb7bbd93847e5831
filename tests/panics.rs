//! A panic in a subscriber, a store or a waker of the application does not harm other callers.

use locker::{Error, ErrorKind, Guard, Locker, lock_on_argument};
use locker_harness::{ScriptedStore, Step, in_time, is_release, is_renewal, until};
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

/// A renewal is due after a third of it: long enough for a busy machine.
const LEASE: Duration = Duration::from_secs(3);

/// Panics at every event of this library.
struct Unwritable;

impl<S: tracing::Subscriber> Layer<S> for Unwritable {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        assert_ne!(event.metadata().target(), "locker", "the log cannot be written");
    }
}

/// Prints panics without a backtrace, which takes long.
fn print_panics_in_short() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))));
}

fn make_logging_panic() {
    static ONCE: Once = Once::new();
    print_panics_in_short();
    ONCE.call_once(|| tracing_subscriber::registry().with(Unwritable).init());
}

/// The first renewals panic, or the first releases fail.
async fn faulty_locker(mut panics: usize, mut failures: usize) -> Locker {
    print_panics_in_short();
    let store = ScriptedStore::local();
    store.on_call(move |request| {
        let is_bad = is_renewal(request) && once_less(&mut panics);
        assert!(!is_bad, "a bad renewal");
        if is_release(request) && once_less(&mut failures) {
            return Step::Answer(Err(Error::new(ErrorKind::Misused, "no release")));
        }
        Step::CarryOut
    });
    Locker::builder().store(store).lease(LEASE).build().await.unwrap()
}

fn once_less(count: &mut usize) -> bool {
    let is_left = *count > 0;
    *count = count.saturating_sub(1);
    is_left
}

async fn is_renewed(guard: &Guard) {
    let first_end = Instant::now() + LEASE;
    until("two renewals", async || Instant::now() + guard.remaining() > first_end + LEASE / 2).await;
    assert!(guard.is_held());
}

async fn another_is_renewed() {
    let guard = Locker::memory().lock("another").lease(LEASE).acquire().await.unwrap();
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
    let locker = faulty_locker(0, 1).await;
    assert_eq!(returns_seven(&locker).unwrap(), 7);
}

/// It harms no other hold.
#[tokio::test]
async fn panicking_renewal_is_tried_again() {
    let locker = faulty_locker(1, 0).await;
    let guard = locker.lock("bad").acquire().await.unwrap();
    is_renewed(&guard).await;
    another_is_renewed().await;
}

#[tokio::test]
async fn hold_is_lost_if_all_renewals_panic() {
    let locker = faulty_locker(usize::MAX, 0).await;
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
    let held = held_for(LEASE).await;
    panics_when_woken(Box::pin(locker.lock("a").acquire())).await;
    drop(held);
    let held = held_for(LEASE).await;
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

    let losing = locker.lock("b").lease(LEASE).max_hold(LEASE).acquire().await.unwrap();
    panics_when_woken(Box::pin(losing.lost())).await;
    another_is_renewed().await;
}
