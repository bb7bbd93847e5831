use super::{
    Hold,
    renewer::{Renewer, Watched},
};
use crate::{
    locker::{Acquired, Ahead, Locker},
    settings::Settings,
};
use locker_core::{
    clock::{Timestamp, lease_deadline},
    id::Id,
    key::Key,
    primitives::{HoldKind, Reply},
    renewals::{self, Wanted},
};
#[cfg(feature = "redis")]
use locker_harness::{ScriptedStore, Step};
use std::{sync::Arc, time::Duration};

#[test]
fn lost_lease_does_not_hide_behind_other_errors() {
    use locker_core::error::{Error, ErrorKind};
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
