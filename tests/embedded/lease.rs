//! Leases when replies of the store are late or lost, or are errors.

use locker::{Error, ErrorKind, Locker};
use locker_harness::{GENEROUS, ScriptedStore, Step, eventually, in_time, is_renewal, until};
use std::{
    mem::forget,
    pin::Pin,
    task::{Context, Waker},
    time::{Duration, Instant},
};

const LEASE: Duration = Duration::from_millis(300);

/// Returns the embedded store behind a link that can be cut.
fn linked() -> (ScriptedStore, Locker) {
    let link = ScriptedStore::remote();
    let locker = Locker::builder().store(link.clone()).lease(LEASE).build_blocking().unwrap();
    (link, locker)
}

fn is_cut() -> Error {
    Error::new(ErrorKind::Unavailable, "the link is cut")
}

/// Requests do not arrive from now on.
fn cut(link: &ScriptedStore) {
    link.fail(|_| true, is_cut());
}

/// Requests arrive from now on, and their replies are lost.
fn lose_replies(link: &ScriptedStore) {
    link.on_call(|_| Step::LoseAnswer(Error::new(ErrorKind::Unavailable, "no reply").unknown()));
}

/// The next request is refused, and the later ones get no reply.
fn refuse_once(link: &ScriptedStore) {
    let mut refusal = Some(is_cut());
    link.on_call(move |_| refusal.take().map_or(Step::Hang, |error| Step::Answer(Err(error))));
}

#[tokio::test]
async fn temporary_renewal_failure_is_not_a_loss() {
    let (link, locker) = linked();
    let guard = locker.lock("a").lease(Duration::from_secs(9)).acquire().await.unwrap();
    cut(&link);
    let before = guard.remaining();
    until("a renewal to be overdue", async || guard.remaining() < Duration::from_millis(5400)).await;
    assert!(guard.is_held() && before > guard.remaining());
    link.recover();
    until("a renewal", async || guard.remaining() > Duration::from_secs(6)).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn holder_cut_off_for_its_lease_is_lost() {
    let (link, locker) = linked();
    let guard = locker.lock("a").acquire().await.unwrap();
    cut(&link);
    in_time("the loss", guard.lost()).await;
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    link.recover();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    until("the release of the lost hold", async || link.memory().users() == 0).await;
}

#[tokio::test]
async fn guard_is_not_held_once_another_can_hold() {
    let (link, locker) = linked();
    let guard = locker.lock("a").acquire().await.unwrap();
    cut(&link);
    let direct = Locker::builder().store(link.memory().clone()).build().await.unwrap();
    let next = direct.lock("a").timeout(GENEROUS).acquire().await.unwrap();
    assert!(!guard.is_held(), "the next holder has it already");
    assert!(next.fence() > guard.fence());
    drop(guard);
    link.recover();
    next.release().await.unwrap();
}

#[tokio::test]
async fn acquire_without_replies_leaves_nothing() {
    let (link, locker) = linked();
    lose_replies(&link);
    let request = locker.lock("a").timeout(Duration::from_millis(100));
    let error = request.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    link.recover();
    until("the cancel", async || link.memory().users() == 0).await;
    locker.lock("a").try_acquire().await.unwrap().expect("free").release().await.unwrap();
}

#[tokio::test]
async fn acquire_is_repeated_until_a_reply_arrives() {
    let (link, locker) = linked();
    lose_replies(&link);
    let (other, state) = (locker.clone(), link.clone());
    let acquiring =
        tokio::spawn(async move { other.lock("a").lease(GENEROUS).timeout(GENEROUS).acquire().await });
    until("the grant whose reply is lost", async || state.memory().users() == 1).await;
    link.recover();
    let guard = acquiring.await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until("the release", async || link.memory().users() == 0).await;
}

/// The first copy of the release was carried out and its reply was lost.
#[tokio::test]
async fn repeated_release_succeeds() {
    let (link, locker) = linked();
    let guard = locker.lock("a").lease(GENEROUS).acquire().await.unwrap();
    lose_replies(&link);
    let state = link.clone();
    let releasing = tokio::spawn(guard.release());
    until("the release", async || state.memory().users() == 0).await;
    link.recover();
    releasing
        .await
        .unwrap()
        .expect("the first copy released it, and no other client can have ended the hold");
}

#[tokio::test]
async fn dropped_guard_is_released_after_an_outage() {
    let (link, locker) = linked();
    let guard = locker.lock("a").lease(GENEROUS).acquire().await.unwrap();
    cut(&link);
    drop(guard);
    link.recover();
    until("the release in the background", async || link.memory().users() == 0).await;
}

/// The application's only thread is blocked for longer than a lease. Renewals continue in the background.
#[tokio::test(flavor = "current_thread")]
async fn a_busy_executor_starves_no_renewal() {
    let (link, locker) = linked();
    let lease = Duration::from_secs(6);
    let (guard, started) = (locker.lock("a").lease(lease).acquire().await.unwrap(), Instant::now());
    // The test blocks the thread, so that no other task of it runs.
    eventually("four renewals", || (link.count(is_renewal) >= 4).then_some(()));
    eventually("the end of the first lease", || (started.elapsed() > lease).then_some(()));
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_that_is_not_renewed_is_never_renewed() {
    let (link, locker) = linked();
    let guard = locker.lock("a").renew(false).acquire().await.unwrap();
    in_time("the end of the lease", guard.lost()).await;
    assert_eq!(link.count(is_renewal), 0);
}

/// Nobody can tell a leaked guard from one that is kept for long.
#[tokio::test]
async fn leaked_guard_is_held_until_max_hold() {
    let (link, locker) = linked();
    let request = |name| locker.lock(name).lease(LEASE);
    // Long enough for a busy machine.
    forget(request("for good").lease(10 * LEASE).acquire().await.unwrap());
    forget(request("bounded").max_hold(2 * LEASE).acquire().await.unwrap());
    in_time("max_hold", request("bounded").timeout(GENEROUS).acquire())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let renewed = link.count(is_renewal);
    until("later renewals", async || link.count(is_renewal) > renewed + 3).await;
    assert!(request("for good").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn many_holds_are_kept_by_one_task() {
    let (link, locker) = linked();
    let mut guards = Vec::new();
    for number in 0..500 {
        guards.push(locker.lock(&format!("name {number}")).lease(LEASE * 10).acquire().await.unwrap());
    }
    until("two renewals of each", async || link.count(is_renewal) >= 1000).await;
    assert!(guards.iter().all(locker::Guard::is_held));
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(link.memory().users(), 0);
}

fn is_pending(waiter: &mut Pin<Box<impl Future>>) -> bool {
    waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// A waiter that is not polled for longer than the lease it was granted queues again, and gets the next hand-off.
#[tokio::test]
async fn late_waiter_queues_again() {
    let locker = Locker::memory();
    let guard = locker.lock("a").acquire().await.unwrap();
    let request = locker.lock("a").lease(Duration::from_secs(3)).timeout(Duration::MAX);
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
async fn silence_does_not_hide_the_last_failure() {
    let names_it = |error: Error| {
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false), "{error}");
        let text = "the store did not reply in time; before that: the link is cut";
        assert!(error.to_string().ends_with(text), "{error}");
    };
    let (link, locker) = linked();
    refuse_once(&link);
    names_it(locker.lock("a").timeout(Duration::from_secs(1)).acquire().await.unwrap_err());
    // Another link: the refusal of the first one may go to the cancel that is still under way. Nothing is renewed.
    let (link, locker) = linked();
    let guard = locker.lock("b").lease(Duration::from_secs(3)).renew(false).acquire().await.unwrap();
    refuse_once(&link);
    names_it(guard.release().await.unwrap_err());
}
