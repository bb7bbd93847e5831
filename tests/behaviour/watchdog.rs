//! Laws of the watchdog.

use crate::support::{GENEROUS, SHORT, after, fresh_name, in_time, pass, queued, queued_or_ended, span};
use locker::{ErrorKind, Locker};
use std::time::{Duration, Instant};

pub(crate) async fn expires_when_it_is_not_kicked_and_never_early(locker: Locker) {
    let watchdog = locker.watchdog(&fresh_name());
    let kicked = Instant::now();
    watchdog.kick(span()).await.unwrap();
    let passed = pass(span() / 2);
    after(span() / 2, "the expiry", watchdog.wait(GENEROUS)).await.unwrap();
    assert!(kicked.elapsed() + passed * 2 >= span());
}

pub(crate) async fn stays_expired_until_the_next_kick(locker: Locker) {
    let watchdog = locker.watchdog(&fresh_name());
    watchdog.kick(span()).await.unwrap();
    pass(span());
    for _ in 0..3 {
        in_time("the expiry", watchdog.wait(GENEROUS)).await.unwrap();
    }
    watchdog.wait(Duration::ZERO).await.unwrap();
    watchdog.kick(GENEROUS).await.unwrap();
    assert_eq!(watchdog.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
}

pub(crate) async fn kick_postpones_expiry_for_all_waiters(locker: Locker) {
    let mut first = SHORT;
    // On a busy machine the first expiry may come before the second kick, which then postpones nothing.
    while !second_kick_postpones(&locker, first).await {
        first *= 2;
        assert!(first < GENEROUS);
    }
}

/// Returns `false` if the second kick came too late to show anything.
async fn second_kick_postpones(locker: &Locker, first: Duration) -> bool {
    let name = fresh_name();
    let (watchdog, key) = (locker.watchdog(&name), locker.admin().key("watchdog", &name));
    let started = Instant::now();
    watchdog.kick(first).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let Ok(waiter) = queued_or_ended(locker, &key, watchdog.wait(GENEROUS)).await else { return false };
        waiting.push(waiter);
    }
    let kicked = Instant::now();
    watchdog.kick(first * 3).await.unwrap();
    if started.elapsed() >= first {
        return false;
    }
    for waiter in waiting {
        in_time("the expiry", waiter).await.unwrap();
        assert!(kicked.elapsed() >= first * 3);
    }
    true
}

pub(crate) async fn shorter_kick_reaches_waiters(locker: Locker) {
    let name = fresh_name();
    let watchdog = locker.watchdog(&name);
    watchdog.kick(Duration::from_secs(86_400)).await.unwrap();
    let waiting = queued(&locker, "watchdog", &name, watchdog.wait(Duration::MAX)).await;
    watchdog.kick(span()).await.unwrap();
    pass(span());
    in_time("the expiry", waiting).await.unwrap();
}

/// A watchdog that was never kicked starts with the first wait.
pub(crate) async fn watchdog_starts_at_the_first_wait(locker: Locker) {
    let (name, admin) = (fresh_name(), locker.admin());
    let watchdog = locker.watchdog(&name);
    let error = watchdog.wait(Duration::ZERO).await.unwrap_err();
    // A store adds what it does not know about its clock.
    let (minute, unknown) = (Duration::from_secs(60), Duration::from_secs(1));
    let is_near = |after| after <= minute + unknown && after > minute / 2;
    assert!(error.retry_after().is_some_and(is_near), "{error:?}");
    let state = admin.inspect(&admin.key("watchdog", &name)).await.unwrap().unwrap();
    assert_eq!(state.fired, Some(false));
}

pub(crate) async fn a_wait_ends_at_its_timeout(locker: Locker) {
    let watchdog = locker.watchdog(&fresh_name());
    let error = in_time("the time-out", watchdog.wait(SHORT)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(watchdog.kick(Duration::ZERO).await.unwrap_err().to_string().contains("expires 0s is too short"));
    watchdog.kick_blocking(SHORT).unwrap();
    watchdog.wait_blocking(GENEROUS).unwrap();
}
