use super::*;
use locker_core::primitives::rate_limiter::Quota;
use locker_harness::in_time;

const MILLI: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn unrenewed_hold_ends_with_its_lease() {
    let (locker, control) = memory();
    let guard = locker.lock("a").lease(MINUTE).renew(false).acquire().await.unwrap();
    // Its holder counts from before the request, and takes a thousandth off.
    control.advance(MINUTE * 499 / 500);
    assert!(guard.is_held());
    assert!(locker.lock("a").try_acquire().await.unwrap().is_none());
    control.advance(MINUTE / 500);
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    in_time("the loss", guard.lost()).await;
    assert!(locker.lock("a").try_acquire().await.unwrap().is_some());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn renewed_hold_survives() {
    let (locker, control) = memory();
    let guards = [
        locker.lock("a").lease(MINUTE).acquire().await.unwrap(),
        locker.lock("b").lease(7 * MINUTE).acquire().await.unwrap(),
        locker.semaphore("c", 2).lease(3 * MINUTE).acquire().await.unwrap(),
    ];
    for by in [MILLI, MINUTE, DAY] {
        control.advance(by);
        for guard in &guards {
            assert!(guard.check().is_ok() && guard.remaining() > MINUTE / 2, "{guard:?} after {by:?}");
        }
        assert!(locker.lock("a").try_acquire().await.unwrap().is_none());
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn max_hold_ends_a_renewed_hold() {
    let (locker, control) = memory();
    let guard = locker.lock("a").lease(MINUTE).max_hold(10 * MINUTE).acquire().await.unwrap();
    control.advance(MILLI * 599_100);
    assert!(guard.is_held() && guard.remaining() < MILLI * 900);
    control.advance(MILLI * 900);
    assert!(guard.check().unwrap_err().to_string().contains("held longer than max_hold"));
    drop(in_time("the next holder", locker.lock("a").acquire()).await.unwrap());
}

#[tokio::test]
async fn waiter_is_served_when_time_has_moved() {
    let (locker, control) = memory();
    let guard = locker.lock("a").lease(DAY).renew(false).acquire().await.unwrap();
    let request = locker.lock("a").lease(MINUTE).timeout(DAY);
    let mut waiting = Box::pin(request.acquire());
    assert_eq!((&mut waiting).now_or_never().map(drop), None);
    control.advance(DAY);
    let next = in_time("the next holder", waiting).await.unwrap();
    // The hand-off says when the lease ends, on the store's clock.
    assert!(next.remaining() <= MINUTE && next.remaining() > MINUTE / 2, "{:?}", next.remaining());
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn limits_refill() {
    for quota in [Quota::fixed_window(2, DAY), Quota::token_bucket(2, DAY), Quota::gcra(2, DAY)] {
        let (locker, control) = memory();
        let limiter = locker.rate_limiter("a", quota);
        limiter.clone().tokens(2).acquire().await.unwrap();
        assert!(limiter.try_acquire().await.unwrap().is_none());
        let patient = limiter.clone().timeout(DAY * 2);
        let mut waiting = Box::pin(patient.acquire());
        assert_eq!((&mut waiting).now_or_never().map(drop), None);
        control.advance(DAY);
        in_time("the reservation", waiting).await.unwrap();
        control.advance(2 * DAY);
        limiter.clone().tokens(2).acquire().await.unwrap();
    }
}

#[tokio::test]
async fn what_has_a_time_ends() {
    let (locker, control) = memory();
    let watchdog = locker.watchdog("dog");
    watchdog.kick(DAY).await.unwrap();
    let mut expiry = Box::pin(watchdog.wait(DAY * 2));
    assert_eq!((&mut expiry).now_or_never().map(drop), None);
    locker.keyed_lock("name").acquire("me", MINUTE, Duration::ZERO).await.unwrap();
    control.advance(DAY);
    in_time("the expiry", expiry).await.unwrap();
    assert!(!locker.keyed_lock("name").release("me").await.unwrap());
}

#[tokio::test]
async fn lost_hold_is_lost_at_once() {
    let (locker, control) = memory();
    let key = locker.admin().key("lock", "a");
    assert!(!control.lose(&key).unwrap());
    for renew in [true, false] {
        let guard = locker.lock("a").lease(DAY).renew(renew).acquire().await.unwrap();
        let other = locker.lock("b").acquire().await.unwrap();
        let request = locker.lock("a");
        let mut waiting = Box::pin(request.acquire());
        assert_eq!((&mut waiting).now_or_never().map(drop), None);
        assert!(control.lose(&key).unwrap());
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
        assert!(other.is_held());
        let next = in_time("the next holder", waiting).await.unwrap();
        assert!(next.fence() > guard.fence());
        next.release().await.unwrap();
        other.release().await.unwrap();
    }
}

#[tokio::test]
async fn outage_fails_calls_and_keeps_waiters() {
    let (locker, control) = memory();
    let guard = locker.lock("a").lease(MINUTE).acquire().await.unwrap();
    let request = locker.lock("a");
    let mut waiting = Box::pin(request.acquire());
    assert_eq!((&mut waiting).now_or_never().map(drop), None);
    let (outage, second) = (control.outage(), control.outage());
    drop(second);
    let error = locker.lock("b").timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(control.lose(&locker.admin().key("lock", "a")).unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(guard.is_held());
    control.advance(MINUTE / 2);
    assert!(guard.is_held(), "half of its lease is left");
    control.advance(MINUTE / 2);
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!((&mut waiting).now_or_never().map(drop), None);
    drop(outage);
    drop(in_time("the waiter", waiting).await.unwrap());
}

#[tokio::test]
async fn outage_shorter_than_the_lease_loses_nothing() {
    let (locker, control) = memory();
    let guard = locker.lock("a").lease(MINUTE).acquire().await.unwrap();
    let outage = control.outage();
    control.advance(MINUTE * 4 / 5);
    drop(outage);
    control.advance(DAY);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn other_stores_do_not_move() {
    let ((_, control), (other, _other)) = (memory(), memory());
    let guard = other.lock("a").lease(MINUTE).renew(false).acquire().await.unwrap();
    control.advance(DAY);
    let _outage = control.outage();
    assert!(guard.is_held() && guard.remaining() > MINUTE / 2);
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn advance_by_any_time_ends() {
    let (locker, control) = memory();
    let guard = locker.lock("a").lease(DAY).renew(false).acquire().await.unwrap();
    control.advance(Duration::MAX);
    control.advance(Duration::MAX);
    assert!(!guard.is_held());
}

#[tokio::test]
async fn builder_sets_the_defaults() {
    let (locker, _control) = memory_with(Locker::builder().prefix("shop:").timeout(Duration::ZERO)).unwrap();
    let guard = locker.lock("a").acquire().await.unwrap();
    assert_eq!(guard.key(), "shop:lock:a");
    assert_eq!(locker.lock("a").acquire().await.unwrap_err().kind(), ErrorKind::TimedOut);
    let error = memory_with(Locker::builder().lease(Duration::ZERO)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused);
}

/// When the store was asked again for a reservation that was over, it made a second one.
#[tokio::test]
async fn reservation_is_taken_once() {
    for quota in [Quota::fixed_window(5, DAY), Quota::token_bucket(5, DAY), Quota::gcra(5, DAY)] {
        let (locker, control) = memory();
        let limiter = locker.rate_limiter("a", quota).timeout(DAY * 9);
        limiter.clone().tokens(5).acquire().await.unwrap();
        let waiting = limiter.clone().tokens(2);
        let mut waiting = Box::pin(waiting.acquire());
        assert_eq!((&mut waiting).now_or_never().map(drop), None);
        let impatient = limiter.clone().tokens(5).timeout(MINUTE).wait_past_timeout(true);
        let mut late = Box::pin(impatient.acquire());
        assert_eq!((&mut late).now_or_never().map(drop), None);
        control.advance(DAY / 2);
        control.advance(DAY / 2);
        in_time("the reservation", waiting).await.unwrap();
        assert_eq!((&mut late).now_or_never().map(drop), None);
        control.advance(DAY);
        assert_eq!(in_time("the late reservation", late).await.unwrap().remaining, 0);
        control.advance(DAY);
        assert_eq!(limiter.acquire().await.unwrap().remaining, 4, "{quota:?}");
    }
}

/// The lease of a hand-off counted from when the waiter read it.
#[tokio::test]
async fn hand_off_that_is_over_is_no_hold() {
    let (locker, control) = memory();
    let first = locker.lock("a").lease(MINUTE).renew(false).acquire().await.unwrap();
    let request = locker.lock("a").lease(MINUTE).timeout(DAY);
    let mut waiting = Box::pin(request.acquire());
    assert_eq!((&mut waiting).now_or_never().map(drop), None);
    control.advance(MINUTE);
    control.advance(DAY);
    let other = locker.lock("a").acquire().await.unwrap();
    assert_eq!((&mut waiting).now_or_never().map(drop), None, "{other:?} holds it");
    other.release().await.unwrap();
    let second = in_time("the waiter", waiting).await.unwrap();
    assert!(second.fence() > first.fence());
    second.release().await.unwrap();
}

#[tokio::test]
async fn shared_holds_end_one_by_one() {
    let (locker, control) = memory();
    let _short = locker.read_lock("a").lease(MINUTE).renew(false).acquire().await.unwrap();
    let long = locker.read_lock("a").lease(DAY).renew(false).acquire().await.unwrap();
    let request = locker.write_lock("a").timeout(DAY);
    let mut writer = Box::pin(request.acquire());
    let many = locker.semaphore("b", 3).permits(2).lease(MINUTE).renew(false).acquire().await.unwrap();
    let renewed = locker.semaphore("b", 3).lease(MINUTE).acquire().await.unwrap();
    let request = locker.semaphore("b", 3).permits(2).timeout(DAY);
    let mut waiting = Box::pin(request.acquire());
    assert_eq!((&mut writer).now_or_never().map(drop), None);
    assert_eq!((&mut waiting).now_or_never().map(drop), None);
    control.advance(MINUTE);
    assert!(!many.is_held() && renewed.is_held() && long.is_held());
    in_time("two permits", waiting).await.unwrap().release().await.unwrap();
    assert_eq!((&mut writer).now_or_never().map(drop), None);
    control.advance(DAY);
    in_time("the writer", writer).await.unwrap().release().await.unwrap();
    renewed.release().await.unwrap();
}

#[tokio::test]
async fn several_locks_survive_and_are_lost_together() {
    let (locker, control) = memory();
    let guards = locker.lock_all(["a", "b"]).lease(MINUTE).acquire().await.unwrap();
    control.advance(DAY);
    guards.check().unwrap();
    assert!(control.lose(&locker.admin().key("lock", "b")).unwrap());
    in_time("the loss", guards.lost()).await;
    assert_eq!(guards.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let unrenewed = locker.lock_all(["a", "b"]).lease(MINUTE).renew(false).acquire().await.unwrap();
    control.advance(MINUTE);
    assert!(!unrenewed.is_held());
    locker.lock_all(["a", "b"]).timeout(Duration::ZERO).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn dropped_guard_is_released_once() {
    let (locker, control) = memory();
    drop(locker.lock("a").lease(MINUTE).acquire().await.unwrap());
    control.advance(DAY);
    let next = in_time("the next holder", locker.lock("a").acquire()).await.unwrap();
    control.advance(DAY);
    locker.settled().await;
    next.release().await.unwrap();
}

#[cfg(feature = "testing")]
mod paused {
    use super::*;
    use locker_core::process::{PerProcess, world::Inhabitant};
    use tokio::time::{Instant, advance, sleep, timeout};

    #[tokio::test(start_paused = true)]
    async fn leases_and_timeouts_take_no_time() {
        let (locker, _paused) = paused();
        let (began, started) = (std::time::Instant::now(), Instant::now());
        let guard = locker.lock("a").lease(DAY).renew(false).acquire().await.unwrap();
        let error = locker.lock("a").timeout(MINUTE).acquire().await.unwrap_err();
        assert_eq!((error.kind(), started.elapsed()), (ErrorKind::TimedOut, MINUTE));
        let next = locker.lock("a").timeout(2 * DAY).acquire().await.unwrap();
        assert!((DAY..DAY + MILLI * 2).contains(&started.elapsed()), "{:?}", started.elapsed());
        assert!(!guard.is_held() && next.is_held());
        assert!(began.elapsed() < MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_sleeps_is_renewed() {
        let (locker, _paused) = paused();
        let guard = locker.lock("a").lease(MINUTE).max_hold(7 * DAY).acquire().await.unwrap();
        sleep(5 * DAY).await;
        guard.check().unwrap();
        guard.lost().await;
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    }

    #[tokio::test(start_paused = true)]
    async fn advance_moves_leases_and_limits() {
        let (locker, _paused) = paused();
        let limiter = locker.rate_limiter("a", Quota::fixed_window(1, DAY));
        limiter.acquire().await.unwrap();
        assert!(limiter.try_acquire().await.unwrap().is_none());
        advance(DAY).await;
        assert!(limiter.try_acquire().await.unwrap().is_some());
        let guard = locker.lock("a").acquire().await.unwrap();
        timeout(MINUTE, locker.lock("a").timeout(DAY).acquire()).await.unwrap_err();
        guard.release().await.unwrap();
        locker.settled().await;
    }

    #[tokio::test(start_paused = true)]
    async fn blocking_wait_is_misused() {
        let (locker, paused) = paused();
        let guard = locker.lock("a").acquire_blocking().unwrap();
        let error = locker.lock("a").acquire_blocking().unwrap_err();
        assert!(
            error.kind() == ErrorKind::Misused && error.to_string().contains("use the async one"),
            "{error}"
        );
        guard.release_blocking().unwrap();
        drop(paused);
        assert_eq!(locker.lock("a").acquire().await.unwrap_err().kind(), ErrorKind::Misused);
    }

    /// `set_global` in one of both made `global` fail in the other.
    #[tokio::test(start_paused = true)]
    async fn statics_of_paused_time_are_nobodys_parents() {
        static CELL: PerProcess<u8> = PerProcess::new();
        CELL.cell().get_or_init(|| 1);
        let paused = paused();
        assert_eq!((CELL.cell().get(), CELL.inherited().next()), (None, None));
        CELL.cell().get_or_init(|| 2);
        drop(paused);
        assert_eq!((CELL.cell().get(), CELL.inherited().next()), (Some(&1), None));
    }

    /// The thread stayed in the first of both.
    #[tokio::test(start_paused = true)]
    async fn any_order_of_ends_ends_paused_time() {
        let ((first, one), (second, other)) = (paused(), paused());
        drop(one);
        second.lock("a").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(first.lock("a").acquire().await.unwrap_err().kind(), ErrorKind::Misused);
        drop(other);
        assert_eq!(Inhabitant::here(), None);
    }

    #[tokio::test]
    async fn time_that_is_not_paused_passes() {
        let (locker, _paused) = paused();
        let guard = locker.lock("a").lease(MILLI * 20).renew(false).acquire().await.unwrap();
        in_time("the next holder", locker.lock("a").acquire()).await.unwrap().release().await.unwrap();
        assert!(!guard.is_held());
    }

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic(expected = "a runtime of one thread")]
    async fn several_threads_panic() {
        drop(paused());
    }
}

#[tokio::test]
async fn advance_ends_min_hold() {
    let (locker, control) = memory();
    let seconds = Duration::from_secs;
    locker.lock("a").min_hold(seconds(30)).acquire().await.unwrap().release().await.unwrap();
    control.advance(seconds(29));
    assert!(locker.lock("a").try_acquire().await.unwrap().is_none());
    control.advance(seconds(2));
    assert!(locker.lock("a").try_acquire().await.unwrap().is_some());
}
