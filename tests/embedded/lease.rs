//! Leases when the store answers late, wrongly or not at all.

use locker::{
    Error, ErrorKind, Key, Locker, Mailboxes,
    primitives::{HoldRequest, Request},
    store::{Calling, Store},
    stores::Memory,
};
use locker_harness::{GENEROUS, in_time, until};
use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};

const LEASE: Duration = Duration::from_millis(300);

/// The embedded store behind a line that can be cut.
#[derive(Clone, Debug)]
struct Line {
    store: Memory,
    state: Arc<AtomicU8>,
    renewals: Arc<AtomicUsize>,
}

const UP: u8 = 0;
/// Requests do not arrive.
const CUT: u8 = 1;
/// Requests arrive, their answers do not.
const DEAF: u8 = 2;
/// One request is refused; those after it are not answered.
const LAST_WORD: u8 = 3;
const SILENT: u8 = 4;

impl Store for Line {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        Calling::Pending(Box::pin(async move {
            let state = self.state.load(Ordering::SeqCst);
            match state {
                CUT | LAST_WORD => {
                    let _ =
                        self.state.compare_exchange(LAST_WORD, SILENT, Ordering::SeqCst, Ordering::SeqCst);
                    return Err(Error::new(ErrorKind::Unavailable, "the line is cut"));
                }
                SILENT => return pending().await,
                _ => {}
            }
            if matches!(request, Request::Lock(HoldRequest::Renew { .. })) {
                self.renewals.fetch_add(1, Ordering::SeqCst);
            }
            let answer = self.store.call(key, request).await;
            if state == DEAF {
                Err(Error::new(ErrorKind::Unavailable, "no answer").unknown())
            } else {
                answer
            }
        }))
    }

    fn mailboxes(&self) -> &Mailboxes {
        self.store.mailboxes()
    }
}

impl Line {
    fn new() -> (Self, Locker) {
        let line = Self { store: Memory::new(), state: Arc::default(), renewals: Arc::default() };
        let locker = Locker::builder().store(line.clone()).lease(LEASE).build_blocking().unwrap();
        (line, locker)
    }

    fn is(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_renewal_that_fails_for_a_while_is_not_a_loss() {
    let (line, locker) = Line::new();
    let guard = locker.lock("a").lease(Duration::from_secs(3)).acquire().await.unwrap();
    line.is(CUT);
    let before = guard.remaining();
    until("a renewal to be overdue", async || guard.remaining() < Duration::from_millis(1800)).await;
    assert!(guard.is_held() && before > guard.remaining());
    line.is(UP);
    until("a renewal", async || guard.remaining() > Duration::from_secs(2)).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_cut_off_for_its_lease_is_told_that_it_is_lost() {
    let (line, locker) = Line::new();
    let guard = locker.lock("a").acquire().await.unwrap();
    line.is(CUT);
    in_time("the loss", guard.lost()).await;
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    line.is(UP);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    until("the release of what was lost", async || line.store.users() == 0).await;
}

#[tokio::test]
async fn a_guard_never_says_held_when_another_could_hold() {
    let (line, locker) = Line::new();
    let guard = locker.lock("a").acquire().await.unwrap();
    line.is(CUT);
    let direct = Locker::builder().store(line.store.clone()).build().await.unwrap();
    let next = direct.lock("a").timeout(GENEROUS).acquire().await.unwrap();
    assert!(!guard.is_held(), "the next holder has it already");
    assert!(next.fence() > guard.fence());
    drop(guard);
    line.is(UP);
    next.release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_whose_answers_are_lost_leaves_nothing_behind() {
    let (line, locker) = Line::new();
    line.is(DEAF);
    let request = locker.lock("a").timeout(Duration::from_millis(100));
    let error = request.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    line.is(UP);
    until("the cancel", async || line.store.users() == 0).await;
    locker.lock("a").try_acquire().await.unwrap().expect("free").release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_is_repeated_until_its_answer_is_heard() {
    let (line, locker) = Line::new();
    line.is(DEAF);
    let (other, state) = (locker.clone(), line.clone());
    let acquiring = tokio::spawn(async move { other.lock("a").timeout(GENEROUS).acquire().await });
    until("the grant nobody heard of", async || state.store.users() == 1).await;
    line.is(UP);
    let guard = acquiring.await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until("the release", async || line.store.users() == 0).await;
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_was_a_release() {
    let (line, locker) = Line::new();
    let guard = locker.lock("a").lease(GENEROUS).acquire().await.unwrap();
    line.is(DEAF);
    let state = line.clone();
    let releasing = tokio::spawn(guard.release());
    until("the release", async || state.store.users() == 0).await;
    line.is(UP);
    releasing.await.unwrap().expect("the first copy did it, and nobody else can have ended the hold");
}

#[tokio::test]
async fn a_dropped_guard_is_released_once_the_line_is_up_again() {
    let (line, locker) = Line::new();
    let guard = locker.lock("a").lease(GENEROUS).acquire().await.unwrap();
    line.is(CUT);
    drop(guard);
    line.is(UP);
    until("the release in the background", async || line.store.users() == 0).await;
}

/// The application's only thread is blocked for several leases: renewals go on elsewhere.
#[tokio::test(flavor = "current_thread")]
async fn a_busy_executor_starves_no_renewal() {
    let (line, locker) = Line::new();
    let guard = locker.lock("a").acquire().await.unwrap();
    let started = Instant::now();
    while started.elapsed() < LEASE * 4 {
        // What is tested: the thread gives nobody else a turn.
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(guard.is_held());
    assert!(line.renewals.load(Ordering::SeqCst) >= 4);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_that_is_not_renewed_is_never_renewed() {
    let (line, locker) = Line::new();
    let guard = locker.lock("a").renew(false).acquire().await.unwrap();
    in_time("the end of the lease", guard.lost()).await;
    assert_eq!(line.renewals.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn many_holds_are_kept_by_one_task() {
    let (line, locker) = Line::new();
    let mut guards = Vec::new();
    for number in 0..500 {
        guards.push(locker.lock(&format!("name {number}")).lease(LEASE * 2).acquire().await.unwrap());
    }
    until("two renewals of each", async || line.renewals.load(Ordering::SeqCst) >= 1000).await;
    assert!(guards.iter().all(locker::Guard::is_held));
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(line.store.users(), 0);
}

fn is_pending(waiter: &mut Pin<Box<impl Future>>) -> bool {
    waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// A waiter that is not polled for longer than the lease it was granted asks again, and hears of the next hand-over.
#[tokio::test]
async fn a_waiter_that_hears_too_late_queues_again() {
    let locker = Locker::memory();
    let guard = locker.lock("a").acquire().await.unwrap();
    let request = locker.lock("a").lease(Duration::from_millis(50)).timeout(Duration::MAX);
    let mut waiter = Box::pin(request.acquire());
    assert!(is_pending(&mut waiter));
    guard.release().await.unwrap();
    let other = locker.lock("a").timeout(GENEROUS).acquire().await.unwrap();
    assert!(is_pending(&mut waiter), "its lease is over and another holds");
    other.release().await.unwrap();
    let guard = in_time("the next hand-over", waiter).await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn silence_at_the_end_does_not_hide_the_last_known_reason() {
    let told = |error: Error| {
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false), "{error}");
        let text = "the store did not reply in time; before that: the line is cut";
        assert!(error.to_string().ends_with(text), "{error}");
    };
    let (line, locker) = Line::new();
    line.is(LAST_WORD);
    told(locker.lock("a").timeout(Duration::from_secs(1)).acquire().await.unwrap_err());
    // Another line: the first one's last word may be for the cancel that is still under way. Nothing is renewed.
    let (line, locker) = Line::new();
    let guard = locker.lock("b").lease(Duration::from_secs(3)).renew(false).acquire().await.unwrap();
    line.is(LAST_WORD);
    told(guard.release().await.unwrap_err());
}
