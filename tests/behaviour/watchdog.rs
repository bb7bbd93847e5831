//! Laws of the watchdog.

use crate::support::{GENEROUS, fresh_name, in_time, queued};
use locker::{ErrorKind, Locker};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(150);

pub(crate) async fn expires_when_it_is_not_kicked_and_never_early(locker: Locker) {
    let watchdog = locker.watchdog(&fresh_name());
    let kicked = Instant::now();
    watchdog.kick(SHORT).await.unwrap();
    in_time("the expiry", watchdog.wait(GENEROUS)).await.unwrap();
    assert!(kicked.elapsed() >= SHORT);
}

pub(crate) async fn stays_expired_until_the_next_kick(locker: Locker) {
    let watchdog = locker.watchdog(&fresh_name());
    watchdog.kick(SHORT).await.unwrap();
    for _ in 0..3 {
        in_time("the expiry", watchdog.wait(GENEROUS)).await.unwrap();
    }
    watchdog.wait(Duration::ZERO).await.unwrap();
    watchdog.kick(GENEROUS).await.unwrap();
    assert_eq!(watchdog.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
}

pub(crate) async fn kick_postpones_expiry_for_all_waiters(locker: Locker) {
    let watchdog = locker.watchdog(&fresh_name());
    watchdog.kick(SHORT).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(queued(&locker, watchdog.wait(GENEROUS)).await);
    }
    let kicked = Instant::now();
    watchdog.kick(SHORT * 3).await.unwrap();
    for waiter in waiting {
        in_time("the expiry", waiter).await.unwrap();
        assert!(kicked.elapsed() >= SHORT * 3);
    }
}

pub(crate) async fn shorter_kick_reaches_waiters(locker: Locker) {
    let watchdog = locker.watchdog(&fresh_name());
    watchdog.kick(Duration::from_secs(3600)).await.unwrap();
    let waiting = queued(&locker, watchdog.wait(Duration::MAX)).await;
    watchdog.kick(SHORT).await.unwrap();
    in_time("the expiry", waiting).await.unwrap();
}

/// A watchdog that was never kicked starts with the first wait.
pub(crate) async fn watchdog_starts_at_the_first_wait(locker: Locker) {
    let (name, admin) = (fresh_name(), locker.admin());
    let watchdog = locker.watchdog(&name);
    let error = watchdog.wait(Duration::ZERO).await.unwrap_err();
    let minute = Duration::from_secs(60);
    assert!(error.retry_after().is_some_and(|after| after <= minute && after > minute / 2), "{error:?}");
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
