//! Holds: the gauge falls once, however a hold ends.

use crate::Metrics;
use locker::{Error, ErrorKind, Locker};
use locker_harness::{ScriptedStore, in_time, is_renewal, until};
use std::{sync::LazyLock, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);

fn losses(metrics: &Metrics, cause: &str) -> u64 {
    let labels = format!(r#"{{kind="lock",function="",cause="{cause}"}}"#);
    metrics.of("locker_losses_total").get(&labels).copied().unwrap_or(0)
}

#[tokio::test]
async fn held_falls_at_a_release_and_at_a_drop() {
    let (metrics, locker) = Metrics::memory();
    let [first, second] = ["a", "b"].map(|name| locker.lock(name).acquire_blocking().unwrap());
    let permit = locker.semaphore("s", 2).acquire().await.unwrap();
    let reader = locker.read_lock("r").acquire().await.unwrap();
    assert_eq!(["lock", "semaphore", "rwlock"].map(|kind| metrics.held(kind)), [2, 1, 1]);
    first.release().await.unwrap();
    assert_eq!(metrics.held("lock"), 1);
    drop((second, permit, reader));
    metrics.assert_idle();
    assert_eq!(metrics.measured(), [0, 4]);
}

#[tokio::test]
async fn lost_hold_leaves_the_gauge_once() {
    let (metrics, builder) = Metrics::new();
    let (locker, control) = locker::testing::memory_with(builder).unwrap();
    let expired = locker.lock("a").lease(MINUTE).renew(false).acquire().await.unwrap();
    let aged = locker.lock("b").lease(MINUTE).max_hold(MINUTE).acquire().await.unwrap();
    let evicted = locker.lock("c").lease(MINUTE * 60).acquire().await.unwrap();
    assert_eq!(metrics.held("lock"), 3);
    control.lose(&locker.admin().key("lock", "c")).unwrap();
    assert_eq!((metrics.held("lock"), losses(&metrics, "taken")), (2, 1));
    control.advance(MINUTE * 2);
    assert_eq!(["expired", "max_hold"].map(|cause| losses(&metrics, cause)), [1, 1]);
    metrics.assert_idle();
    expired.release().await.unwrap_err();
    drop((aged, evicted));
    locker.settled().await;
    metrics.assert_idle();
    assert_eq!(metrics.measured(), [0, 3]);
    assert_eq!(metrics.of("locker_losses_total").values().sum::<u64>(), 3, "each loss is counted once");
}

/// The holder learns of the loss at its release alone.
#[tokio::test]
async fn hold_that_is_gone_is_a_loss() {
    let (metrics, locker) = Metrics::memory();
    let guard = locker.lock("a").acquire().await.unwrap();
    locker.admin().evict(&locker.admin().key("lock", "a")).await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(losses(&metrics, "gone"), 1);
    metrics.assert_idle();
}

/// Nobody was at work when it was ended by force.
#[tokio::test]
async fn hold_that_is_kept_counts_until_its_end_and_is_no_loss() {
    let (metrics, builder) = Metrics::new();
    let (locker, control) = locker::testing::memory_with(builder).unwrap();
    let kept = || locker.lock("a").min_hold(MINUTE).acquire();
    let key = locker.admin().key("lock", "a");
    for is_evicted in [false, true] {
        kept().await.unwrap().release().await.unwrap();
        assert_eq!(metrics.held("lock"), 1);
        if is_evicted {
            assert!(locker.admin().evict(&key).await.unwrap());
        }
        control.advance(MINUTE * 2);
        metrics.assert_idle();
    }
    assert_eq!(losses(&metrics, "gone"), 0);
    let guard = kept().await.unwrap();
    assert!(locker.admin().evict(&key).await.unwrap());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    metrics.assert_idle();
    assert_eq!((losses(&metrics, "gone"), metrics.measured()), (1, [0, 3]));
}

#[tokio::test]
async fn renewals_are_counted_by_outcome() {
    let (metrics, builder) = Metrics::new();
    let store = ScriptedStore::remote();
    let locker = builder.store(store.clone()).lease(Duration::from_secs(3)).build().await.unwrap();
    let outcome = |outcome: &str| {
        let labels = format!(r#"{{outcome="{outcome}"}}"#);
        metrics.of("locker_renewals_total").get(&labels).copied().unwrap_or(0)
    };
    let guard = locker.lock("a").acquire().await.unwrap();
    until("a renewal", async || outcome("granted") > 0).await;
    store.fail(is_renewal, Error::new(ErrorKind::Unavailable, "no renewals today").unknown());
    until("a failed renewal", async || outcome("unavailable") > 0).await;
    assert_eq!(metrics.held("lock"), 1, "in jeopardy it is still held");
    in_time("the loss", guard.lost()).await;
    metrics.assert_idle();
    assert_eq!(losses(&metrics, "expired"), 1);
    store.recover();
    drop(guard);
    locker.settled().await;
}

/// Prometheus sees no increase in a counter that begins at one.
#[tokio::test]
async fn losses_are_counted_from_zero() {
    let (metrics, locker) = Metrics::memory();
    locker.lock("a").acquire().await.unwrap().release().await.unwrap();
    let text = metrics.0.render();
    for cause in ["max_hold", "expired", "taken", "gone"] {
        let line = format!("locker_losses_total{{kind=\"lock\",function=\"\",cause=\"{cause}\"}} 0\n");
        assert!(text.contains(&line), "{line} in\n{text}");
    }
}

static KEPT: LazyLock<(Metrics, Locker)> = LazyLock::new(Metrics::memory);

#[locker::lock_on_argument(lease = "1h", renew = false, release = "on_expiry", timeout = "0s", locker = KEPT.1)]
async fn submit() -> locker::Result<u64> {
    Ok(KEPT.0.held("lock"))
}

#[tokio::test]
async fn hold_left_to_its_lease_ends_with_its_function() {
    assert_eq!(submit().await.unwrap(), 1);
    KEPT.0.assert_idle();
    assert_eq!(submit().await.unwrap_err().kind(), ErrorKind::TimedOut);
    KEPT.0.assert_idle();
    assert_eq!(KEPT.0.measured(), [0, 1]);
}
