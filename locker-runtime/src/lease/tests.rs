use super::{
    Hold,
    guard::while_held,
    renewer::{Renewer, Watched},
};
use crate::{
    locker::{Acquired, Ahead, Locker, Loss},
    settings::Settings,
};
use futures_util::FutureExt;
use locker_core::{
    clock::{Timestamp, lease_deadline},
    error::{ErrorKind, Result},
    id::Id,
    key::Key,
    primitives::{HoldKind, Reply},
    renewals::{self, Wanted},
};
#[cfg(feature = "redis")]
use locker_harness::{ScriptedStore, Step};
use std::{
    cell::Cell,
    future::{pending, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

#[test]
fn lost_lease_does_not_hide_behind_other_errors() {
    use locker_core::error::Error;
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
    assert!(one.fence() > 0 && one.id().len() == 32 && one.id() != other.id());
    assert!(one.id().bytes().all(|byte| byte.is_ascii_hexdigit()));
    let lease = Duration::from_secs(10);
    assert!((lease / 2..=lease).contains(&one.remaining()) && one.is_held());
    one.check().unwrap();
    one.hold().lose(Loss::Taken);
    assert!(one.remaining().is_zero() && !one.is_held());
    assert_eq!(one.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(one.check().unwrap_err().key(), Some("tells:lock:a"));
    one.lost().await;
    let mut lasts = Box::pin(other.lost());
    assert!(lasts.as_mut().now_or_never().is_none(), "the other goes on");
    drop(lasts);
    other.release().await.unwrap();
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
