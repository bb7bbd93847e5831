mod releases;
mod runs;
mod times;

use super::{
    Hold,
    guard::while_held,
    renewer::{Renewer, Watched},
};
use crate::{
    handles::LockRequest,
    locker::{Acquired, Ahead, Locker, Loss},
    settings::Settings,
};
use futures_util::FutureExt;
use locker_core::{
    clock::{Timestamp, lease_deadline},
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    primitives::{HoldKind, HoldRequest, Reply, Request},
    renewals::{self, Wanted},
};
use locker_harness::{ScriptedStore, Step, is_renewal};
use std::{
    cell::Cell,
    future::{pending, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, UNIX_EPOCH},
};

#[test]
fn lost_lease_does_not_hide_behind_other_errors() {
    let error = |kind: ErrorKind, message: &'static str| Err(Error::new(kind, message));
    let worst = |results: Vec<_>| super::worst(results).map_err(|error| error.message().to_owned());
    assert_eq!(worst(vec![Ok(()), Ok(())]), Ok(()));
    let silent = || error(ErrorKind::Unavailable, "silent");
    assert_eq!(worst(vec![Ok(()), silent(), error(ErrorKind::Misused, "later")]), Err("silent".into()));
    let lost = [error(ErrorKind::Lost, "first"), error(ErrorKind::Lost, "second")];
    assert_eq!(worst([silent()].into_iter().chain(lost).collect()), Err("first".into()));
}

/// A hold that its store does not know.
fn held(sent: Timestamp, since: Timestamp) -> Arc<Hold> {
    held_for(Duration::from_secs(10), sent, since)
}

fn held_for(lease: Duration, sent: Timestamp, since: Timestamp) -> Arc<Hold> {
    hold_of(&Locker::memory(), lease, sent, since)
}

fn hold_of(locker: &Locker, lease: Duration, sent: Timestamp, since: Timestamp) -> Arc<Hold> {
    hold_with(locker, Settings { lease, max_hold: Some(lease), ..Settings::default() }, sent, since)
}

fn hold_with(locker: &Locker, settings: Settings, sent: Timestamp, since: Timestamp) -> Arc<Hold> {
    let acquired = Acquired {
        reply: Reply::Granted { fence: 1 },
        sent,
        ahead: Ahead::default(),
        since,
        doubtful: false,
        waited: None,
    };
    let key = Key::new("lock:a");
    Hold::new(locker.clone(), HoldKind::Lock, key, Id::from(1), 1, settings, &acquired, None)
}

#[test]
fn max_hold_counts_from_the_grant() {
    let of = Duration::from_secs;
    let (sent, since) = (Timestamp::now(), Timestamp::now() + of(2));
    let hold = held(sent, since);
    assert_eq!((hold.end, hold.deadline()), (since + of(10), lease_deadline(sent, of(10))));
}

/// The store may have forgotten a hold that it granted before the request to renew all.
#[tokio::test]
async fn late_watch_catches_up_on_renew_all() {
    let (now, locker) = (Timestamp::now, Locker::memory());
    let of_a_long_lease = || hold_of(&locker, Duration::from_secs(600), now(), now());
    let (before, late) = (of_a_long_lease(), of_a_long_lease());
    Renewer::watch(&before);
    renewals::renew_all(locker.store());
    Renewer::watch(&late);
    for hold in [before, late] {
        locker_harness::in_time("the loss", hold.lost()).await;
    }
}

/// The waiter had taken the hand-off from its mailbox before the request to renew all, and read the clock after it.
#[tokio::test]
async fn late_hold_catches_up_on_renew_all() {
    let (locker, granted) = (Locker::memory(), Timestamp::now());
    Renewer::watch(&hold_of(&locker, Duration::from_secs(10), granted, granted));
    renewals::renew_all(locker.store());
    let late = hold_of(&locker, Duration::from_secs(600), granted, granted + Duration::from_secs(1));
    Renewer::watch(&late);
    locker_harness::in_time("the loss", late.lost()).await;
}

#[test]
fn renew_all_spares_other_stores() {
    let (one, other, id) = (Locker::memory(), Locker::memory(), Id::from(1));
    let wanted = Wanted::all_of(one.store());
    assert_eq!([&one, &other].map(|locker| wanted.includes(locker.store(), id)), [true, false]);
}

#[test]
fn loss_error_names_max_hold() {
    let (now, long_ago) = (Timestamp::now(), Timestamp::now() - Duration::from_secs(60));
    assert!(held(now, long_ago).loss_error().message().contains("max_hold"), "it was renewed until now");
    for sent in [now, long_ago] {
        assert!(!held(sent, now).loss_error().message().contains("max_hold"), "it has not passed");
    }
    assert!(!held(long_ago, long_ago).loss_error().message().contains("max_hold"), "it was not renewed");
}

#[test]
fn warning_is_due_every_ten_leases() {
    let (now, of) = (Timestamp::now(), Duration::from_secs);
    let is_due = |settings| {
        let mut watched = Watched::new(&hold_with(&Locker::memory(), settings, now, now));
        [99, 100, 101, 199, 200].map(|second| watched.is_warning_due(now + of(second)))
    };
    assert_eq!(is_due(Settings::default()), [false, true, false, false, true]);
    for silent in [
        Settings { renew: false, ..Settings::default() },
        Settings { max_hold: Some(of(1000)), ..Settings::default() },
        Settings { is_long: true, ..Settings::default() },
    ] {
        assert_eq!(is_due(silent), [false; 5]);
    }
}

/// Another server has taken over, and the store has not answered since.
#[cfg(feature = "redis")]
#[tokio::test]
async fn doubted_hold_is_in_jeopardy_until_it_is_renewed() {
    let store = ScriptedStore::remote();
    store.on_call(|_| Step::Hang);
    let locker = Locker::with_defaults(store);
    let of = |lease| hold_of(&locker, lease, Timestamp::now(), Timestamp::now());
    let (hold, other) = (of(Duration::from_secs(600)), held(Timestamp::now(), Timestamp::now()));
    for hold in [&hold, &other] {
        Renewer::watch(hold);
    }
    assert!(!hold.is_in_jeopardy());
    renewals::doubt_all(locker.store());
    locker_harness::until("the doubt", async || hold.is_in_jeopardy()).await;
    assert!(hold.is_held() && !other.is_in_jeopardy());
    hold.renewed(Timestamp::now(), Duration::ZERO);
    assert!(!hold.is_in_jeopardy());
}

/// Whether a lock is free.
fn is_free(locker: &Locker, name: &str) -> bool {
    locker.lock(name).try_acquire_blocking().unwrap().is_some()
}

#[tokio::test]
async fn release_ends_the_hold_however_it_is_called() {
    let (locker, acquire) = (Locker::memory(), |locker: &Locker| locker.lock("a").acquire());
    for way in ["async", "blocking", "drop", "bounded", "all"] {
        let guard = acquire(&locker).await.unwrap();
        assert!(!is_free(&locker, "a"));
        match way {
            "async" => guard.release().await.unwrap(),
            "blocking" => guard.release_blocking().unwrap(),
            "drop" => drop(guard),
            "bounded" => guard.release_bounded().await.unwrap(),
            _ => super::release_all([guard].into_iter()).await.unwrap(),
        }
        assert!(is_free(&locker, "a"), "{way}");
    }
    let mut guard = acquire(&locker).await.unwrap();
    guard.release_on_expiry();
    assert!(guard.held().is_none());
    guard.release().await.unwrap();
    assert!(!is_free(&locker, "a"), "it lasts until its lease ends");
}

#[tokio::test]
async fn lost_hold_is_told_by_each_release() {
    let locker = Locker::memory();
    let admin = locker.admin();
    let lost = async |name: &str| {
        let guard = locker.lock(name).acquire().await.unwrap();
        assert!(admin.evict(&admin.key("lock", name)).await.unwrap());
        guard
    };
    let is_lost = |result: Result<()>| result.unwrap_err().kind() == ErrorKind::Lost;
    assert!(is_lost(lost("a").await.release().await));
    assert!(is_lost(lost("a").await.release_blocking()));
    assert!(is_lost(lost("a").await.release_bounded().await));
    let guards = [lost("a").await, locker.lock("b").acquire().await.unwrap()];
    assert!(is_lost(super::release_all(guards.into_iter()).await));
    assert!(is_free(&locker, "b"), "the others are released");
}

#[tokio::test]
async fn guard_tells_of_its_hold() {
    let locker = Locker::builder().url("memory://").prefix("tells:").build().await.unwrap();
    let (one, other) = (locker.lock("a").acquire().await.unwrap(), locker.lock("b").acquire().await.unwrap());
    assert_eq!((one.key(), other.key()), ("tells:lock:a", "tells:lock:b"));
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    assert_eq!(u64::try_from(other.fence_in_sql()), Ok(other.fence()));
    assert!(one.fence() > 0 && one.id().len() == 32 && one.id() != other.id());
    assert!(one.id().bytes().all(|byte| byte.is_ascii_hexdigit()));
    let lease = Duration::from_secs(10);
    assert!((lease / 2..=lease).contains(&one.remaining()) && one.is_held());
    one.check().unwrap();
    assert!(one.hold().is_held() && one.hold().around().is_some());
    one.hold().lose(Loss::Taken);
    assert!(one.remaining().is_zero() && !one.is_held());
    assert!(!one.hold().is_held() && one.hold().around().is_none());
    assert_eq!(one.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(one.check().unwrap_err().key(), Some("tells:lock:a"));
    one.lost().await;
    let mut lasts = Box::pin(other.lost());
    assert!(lasts.as_mut().now_or_never().is_none(), "the other goes on");
    drop(lasts);
    other.release().await.unwrap();
}

#[tokio::test]
async fn guard_tells_of_its_slot() {
    let guard = Locker::memory().lock("a").acquire().await.unwrap();
    let begins = Some(Timestamp::from_micros(5_000_001));
    let guard = guard.in_slot(begins, 3);
    assert_eq!(guard.slot(), Some(UNIX_EPOCH + Duration::from_micros(5_000_001)));
    assert_eq!(guard.missed(), 3);
    let guard = guard.in_slot(None, 3);
    assert_eq!((guard.slot(), guard.missed()), (None, 0));
}

/// A body that is ready at its third poll, and counts them.
fn body(polls: &Cell<u32>) -> impl Future<Output = u32> + '_ {
    poll_fn(|context| {
        polls.set(polls.get() + 1);
        context.waker().wake_by_ref();
        if polls.get() < 3 { Poll::Pending } else { Poll::Ready(polls.get()) }
    })
}

#[tokio::test]
async fn body_is_polled_while_it_is_held() {
    let polls = Cell::new(0);
    let output = while_held(pin!(body(&polls)), pin!(pending()), || true).await;
    assert_eq!((output, polls.replace(0)), (Some(3), 3));
    assert_eq!(while_held(pin!(body(&polls)), pin!(async {}), || true).await, None);
    assert_eq!(polls.replace(0), 1, "the loss ends it");
    assert_eq!(while_held(pin!(body(&polls)), pin!(pending()), || false).await, None);
    assert_eq!(polls.replace(0), 1, "the lease is over, which is not asked before the first poll");
}

#[test]
fn ends_of_functions_wait_for_a_third_of_a_lease_or_a_command() {
    let now = Timestamp::now();
    let of = |lease| held_for(lease, now, now);
    assert_eq!(of(Duration::from_millis(300)).release_timeout(), Duration::from_millis(100));
    assert_eq!(of(Duration::from_secs(60)).release_timeout(), Duration::from_secs(1));
    assert_eq!(of(Duration::from_secs(60)).patience(), Duration::from_secs(20));
    let due = of(Duration::from_secs(60)).release_due().since(Timestamp::now());
    assert!((Duration::from_secs(1)..Duration::from_millis(1_200)).contains(&due), "{due:?}");
}

#[test]
fn hold_is_over_with_its_lease_or_by_age() {
    let (now, of) = (Timestamp::now(), Duration::from_secs);
    let settings = |max_hold| Settings { lease: of(10), max_hold, ..Settings::default() };
    let hold = |max_hold: Option<u64>| hold_with(&Locker::memory(), settings(max_hold.map(of)), now, now);
    let long = hold(None);
    assert_eq!(long.over_at(), lease_deadline(now, of(10)));
    assert!(!long.is_beyond_max_hold(now + of(3_600)));
    long.renewed(now + of(5), Duration::ZERO);
    assert_eq!(long.over_at(), lease_deadline(now + of(5), of(10)));
    long.renewed(now, Duration::ZERO);
    assert_eq!(long.over_at(), lease_deadline(now + of(5), of(10)), "a renewal never shortens it");
    let short = hold(Some(12));
    short.renewed(now + of(5), Duration::ZERO);
    assert_eq!(short.over_at(), now + of(12));
    assert!(!short.is_beyond_max_hold(now + of(12) - Duration::from_micros(1)));
    assert!(short.is_beyond_max_hold(now + of(12)));
}

/// The margin comes off the deadline and off `max_hold`, and renewals keep their distance to the deadline.
#[test]
fn stop_before_moves_the_deadline() {
    let (now, of, locker) = (Timestamp::now(), Duration::from_secs, Locker::memory());
    let settings = Settings { max_hold: Some(of(60)), stop_before: of(4), ..Settings::default() };
    let hold = hold_with(&locker, settings, now, now);
    assert_eq!((hold.deadline(), hold.end), (lease_deadline(now, of(10)) - of(4), now + of(56)));
    let spread = hold.renew_at().since(now);
    assert!((Duration::from_millis(1_600)..of(2)).contains(&spread), "a third of six seconds: {spread:?}");
    hold.renewed(now + of(2), Duration::ZERO);
    assert_eq!(hold.deadline(), lease_deadline(now + of(2), of(10)) - of(4));
    let late = hold_with(&locker, settings, now - of(7), now - of(7));
    assert!(!late.is_held());
    let error = late.loss_error();
    assert!(error.message().contains("not renewed in time for stop_before"), "{error}");
    let old = hold_with(&locker, settings, now, now - of(56));
    let error = old.loss_error();
    assert!(error.message().contains("stop_before the end of max_hold"), "{error}");
}

#[tokio::test]
async fn hold_that_is_lost_to_its_margin_is_not_released() {
    let store = ScriptedStore::remote();
    let (locker, of) = (Locker::with_defaults(store.clone()), Duration::from_millis);
    for is_dropped in [true, false] {
        let request = locker.lock("a").lease(of(400)).stop_before(of(200)).renew(false);
        let guard = request.timeout(locker_harness::GENEROUS).acquire().await.unwrap();
        guard.lost().await;
        if is_dropped {
            drop(guard);
        } else {
            assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        }
        locker.settled().await;
    }
    let is_release = |request: &Request| matches!(request, Request::Lock(HoldRequest::Release { .. }));
    assert_eq!(store.count(is_release), 0);
    // One that was ended by force protects nothing.
    let guard = locker.lock("b").stop_before(Duration::from_secs(5)).acquire().await.unwrap();
    guard.hold().lose(Loss::Taken);
    drop(guard);
    locker.settled().await;
    assert!(is_free(&locker, "b"));
}

/// Returns a store that seems to be across a network, and a locker with this command timeout.
fn remote(command_timeout: Duration) -> (ScriptedStore, Locker) {
    let store = ScriptedStore::remote();
    let builder = Locker::builder().store(store.clone()).command_timeout(command_timeout);
    (store, builder.build_blocking().unwrap())
}

fn kept(locker: &Locker) -> LockRequest {
    locker.lock("a").lease(Duration::from_secs(9)).min_hold(Duration::from_secs(60))
}

/// The requests of releases and renewals.
fn ends(store: &ScriptedStore) -> Vec<Request> {
    let is_end = |request: &Request| {
        matches!(request, Request::Lock(HoldRequest::Release { .. } | HoldRequest::Renew { .. }))
    };
    let ends = store.requests().into_iter().map(|(_, request)| request).filter(is_end);
    ends.collect()
}

#[tokio::test]
async fn min_hold_takes_one_renewal_for_all_of_it() {
    let store = ScriptedStore::remote();
    let locker = Locker::with_defaults(store.clone());
    kept(&locker).acquire().await.unwrap().release().await.unwrap();
    let asked = ends(&store);
    let [Request::Lock(HoldRequest::Renew { lease, .. })] = asked[..] else { panic!("{asked:?}") };
    assert!((Duration::from_secs(60)..Duration::from_secs(63)).contains(&lease), "{lease:?}");
    // A lease that lasts long enough is not renewed.
    let request = locker.lock("b").lease(Duration::from_secs(90)).min_hold(Duration::from_secs(60));
    request.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(ends(&store).len(), 1);
}

/// Waits until the store keeps the lock `a` for longer than its lease.
async fn until_it_is_kept(store: &ScriptedStore) {
    let locker = Locker::with_defaults(store.memory().clone());
    let key = locker.admin().key("lock", "a");
    locker_harness::until("a renewal for the rest of min_hold", async || {
        let state = locker.admin().inspect(&key).await.unwrap().expect("a hold");
        state.holders[0].time_left.is_some_and(|left| left > Duration::from_secs(40))
    })
    .await;
}

#[tokio::test]
async fn min_hold_is_told_again_after_errors() {
    for error in [
        Error::new(ErrorKind::Unavailable, "the link is cut"),
        Error::new(ErrorKind::Misused, "the role may not").unsent(),
        Error::new(ErrorKind::Misused, "the role may not"),
    ] {
        let store = ScriptedStore::remote();
        let locker = Locker::with_defaults(store.clone());
        let guard = kept(&locker).acquire().await.unwrap();
        let kind = if error.is_unsent() { ErrorKind::Unavailable } else { error.kind() };
        store.fail(is_renewal, error);
        let told = guard.release().await.unwrap_err();
        assert_eq!((told.kind(), told.key()), (kind, Some("lock:a")));
        store.recover();
        until_it_is_kept(&store).await;
    }
}

#[tokio::test]
async fn short_outage_at_a_release_is_not_told() {
    let store = ScriptedStore::remote();
    let locker = Locker::with_defaults(store.clone());
    let guard = kept(&locker).acquire().await.unwrap();
    let mut failures = 0..2;
    store.on_call(move |request| {
        let fails = is_renewal(request) && failures.next().is_some();
        let cut = || Error::new(ErrorKind::Unavailable, "the link is cut");
        if fails { Step::Answer(Err(cut())) } else { Step::CarryOut }
    });
    guard.release().await.unwrap();
    until_it_is_kept(&store).await;
}

#[tokio::test]
async fn min_hold_of_a_lost_hold_is_told_as_a_loss() {
    let locker = Locker::memory();
    let guard = kept(&locker).acquire().await.unwrap();
    assert!(locker.admin().evict(&locker.admin().key("lock", "a")).await.unwrap());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(is_free(&locker, "a"));
}

#[tokio::test]
async fn release_that_is_dropped_leaves_min_hold_to_the_background() {
    let store = ScriptedStore::remote();
    let locker = Locker::with_defaults(store.clone());
    let guard = kept(&locker).acquire().await.unwrap();
    store.fail(is_renewal, Error::new(ErrorKind::Unavailable, "the link is cut"));
    let mut release = Box::pin(guard.release());
    assert!(release.as_mut().now_or_never().is_none());
    drop(release);
    store.recover();
    locker.settled().await;
    until_it_is_kept(&store).await;
}

/// A late reply about a kept hold says nothing of the hold that has its number now.
#[tokio::test]
async fn kept_hold_that_is_gone_spares_others() {
    let store = ScriptedStore::remote();
    let locker = Locker::with_defaults(store.clone());
    let guard = kept(&locker).acquire().await.unwrap();
    let evicting = Locker::with_defaults(store.memory().clone());
    assert!(evicting.admin().evict(&evicting.admin().key("lock", "a")).await.unwrap());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let other = locker.lock("b").lease(Duration::from_millis(300)).acquire().await.unwrap();
    let renewals = || store.requests().into_iter().filter(|(_, request)| is_renewal(request)).count();
    locker_harness::until("renewals of the other", async || renewals() >= 4).await;
    assert!(other.is_held());
    other.release().await.unwrap();
}

/// Another server may lack the renewal.
#[tokio::test]
async fn kept_hold_is_told_to_another_server() {
    let store = ScriptedStore::remote();
    let locker = Locker::with_defaults(store.clone());
    kept(&locker).acquire().await.unwrap().release().await.unwrap();
    assert_eq!(ends(&store).len(), 1);
    renewals::renew_all(locker.store());
    locker_harness::until("another renewal", async || ends(&store).len() == 2).await;
}

/// `max_hold` bounds it, and the margin comes off the work under it.
#[tokio::test]
async fn hold_beyond_max_hold_is_released_after_its_margin() {
    let (locker, of) = (Locker::memory(), Duration::from_millis);
    let request = locker.lock("a").lease(of(1_000)).stop_before(of(300)).max_hold(of(1_000));
    let (asked, guard) = (std::time::Instant::now(), request.acquire().await.unwrap());
    guard.lost().await;
    drop(guard);
    let next = locker.lock("a").timeout(locker_harness::GENEROUS).acquire().await.unwrap();
    assert!(asked.elapsed() >= of(1_000), "within the margin");
    next.release().await.unwrap();
}

#[test]
fn margins_out_of_range_are_refused_by_name() {
    let (locker, of) = (Locker::memory(), Duration::from_secs);
    let refused = |request: LockRequest| {
        let error = request.acquire_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused);
        error.message().to_owned()
    };
    let lock = || locker.lock("a");
    assert_eq!(refused(lock().stop_before(of(6))), "stop_before 6s is more than half of the lease 10s");
    assert!(
        refused(lock().min_hold(of(61)).max_hold(of(60))).contains("min_hold 1m 1s is longer than max_hold")
    );
    assert!(refused(lock().min_hold(Duration::MAX)).contains("min_hold"));
    let guard = lock().stop_before(of(5)).min_hold(of(0)).acquire_blocking().unwrap();
    guard.release_blocking().unwrap();
    assert!(is_free(&locker, "a"));
}

/// The caller that tried would be in its own way at its next try.
#[tokio::test]
async fn several_locks_that_are_not_all_granted_are_not_kept() {
    let (locker, of) = (Locker::memory(), Duration::from_secs);
    let both = || locker.lock_all(["a", "b"]).min_hold(of(60));
    let held = locker.lock("b").acquire().await.unwrap();
    assert!(both().try_acquire().await.unwrap().is_none());
    assert!(is_free(&locker, "a"), "tried");
    let mut dropped = Box::pin(both().acquire());
    assert!(dropped.as_mut().now_or_never().is_none());
    drop(dropped);
    assert!(is_free(&locker, "a"), "dropped");
    held.release().await.unwrap();
    both().acquire().await.unwrap().release().await.unwrap();
    assert!(!is_free(&locker, "a") && !is_free(&locker, "b"), "all were granted");
}
