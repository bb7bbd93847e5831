//! What `stop_before` and `min_hold` add to a hold at its end.

use crate::support::{GENEROUS, fresh_name, in_time, pass, queued, span, until};
use futures_util::poll;
use locker::{ErrorKind, Guard, LockRequest, Locker};
use std::time::{Duration, Instant};

/// What a store may add to the end of a hold, for what it does not know about its clock.
const ADDED: Duration = Duration::from_secs(2);

/// A request for all permits of each kind, with the kind in keys.
fn requests(locker: &Locker, name: &str) -> [(&'static str, LockRequest); 3] {
    [
        ("lock", locker.lock(name)),
        ("semaphore", locker.semaphore(name, 2).permits(2)),
        ("rwlock", locker.write_lock(name)),
    ]
}

/// The work of a hold that is lost to its margin has the rest of the lease to arrive, also if its guard is dropped.
pub(crate) async fn hold_lost_to_its_margin_lasts_for_its_lease(locker: Locker) {
    let (name, lease) = (fresh_name(), span() * 4);
    let (asked, mut passed) = (Instant::now(), Duration::ZERO);
    let mut guards = Vec::new();
    for (kind, request) in requests(&locker, &name) {
        let request = request.lease(lease).renew(false).stop_before(lease / 2);
        let guard = request.acquire().await.unwrap();
        let granted = Instant::now();
        let left = guard.remaining();
        assert!(left <= (lease / 2).saturating_sub(granted.elapsed()), "{kind}: {left:?} of {lease:?}");
        guards.push(guard);
    }
    passed += pass(lease / 2);
    for guard in guards {
        in_time("the loss", guard.lost()).await;
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
        drop(guard);
    }
    locker.settled().await;
    for (kind, request) in requests(&locker, &name) {
        if let Some(next) = request.try_acquire().await.unwrap() {
            assert!(asked.elapsed() + passed >= lease, "{kind}: within the margin");
            next.release().await.unwrap();
        }
    }
    passed += pass(lease / 2);
    for (kind, request) in requests(&locker, &name) {
        let next = in_time("the end of the lease", request.timeout(GENEROUS).acquire()).await.unwrap();
        assert!(asked.elapsed() + passed >= lease, "{kind}: within the margin");
        next.release().await.unwrap();
    }
}

/// The next caller may be granted it half of a usable lease late, and has some of it then.
pub(crate) async fn waiters_with_a_margin_are_served(locker: Locker) {
    let (name, lease) = (fresh_name(), Duration::from_secs(20));
    for (_, request) in requests(&locker, &name) {
        let request = request.lease(lease).stop_before(lease / 2).timeout(GENEROUS);
        let first = request.clone().acquire().await.unwrap();
        let (before, second) = (first.fence(), request.acquire());
        let release = async { first.release().await.unwrap() };
        let (second, ()) = in_time("the hand-over", async { tokio::join!(second, release) }).await;
        let second = second.unwrap();
        assert!(second.fence() > before && second.is_held());
        second.release().await.unwrap();
    }
}

/// Asks the store for how long a hold lasts there, also if this process ends.
async fn assert_it_is_kept(locker: &Locker, kind: &str, name: &str, fence: u64, times: Times) {
    let state = locker.admin().inspect(&locker.admin().key(kind, name)).await.unwrap().expect("a hold");
    assert_eq!(state.holders[0].fence, fence, "{kind}");
    let left = state.holders[0].time_left.unwrap();
    assert!(left + times.asked.elapsed() >= times.least, "{kind} ends too early: {left:?}");
    assert!(left <= times.least + times.lease + ADDED, "{kind} ends too late: {left:?}");
}

#[derive(Clone, Copy)]
struct Times {
    asked: Instant,
    lease: Duration,
    least: Duration,
}

/// However a hold ends, the store keeps it for `min_hold`, and no longer than a lease beyond that if the process ends.
pub(crate) async fn short_hold_lasts_for_min_hold(locker: Locker) {
    let times = Times { asked: Instant::now(), lease: span() * 3, least: span() * 10 };
    let mut names = Vec::new();
    for is_released in [true, false] {
        let name = fresh_name();
        for (kind, request) in requests(&locker, &name) {
            let guard = request.lease(times.lease).min_hold(times.least).acquire().await.unwrap();
            let fence = guard.fence();
            if is_released {
                in_time("a release that does not wait", guard.release()).await.unwrap();
            } else {
                drop(guard);
                in_time("the renewal", locker.settled()).await;
            }
            assert_it_is_kept(&locker, kind, &name, fence, times).await;
        }
        names.push(name);
    }
    let next = async {
        let mut guards: Vec<Guard> = Vec::new();
        for name in &names {
            for (_, request) in requests(&locker, name) {
                guards.push(request.timeout(GENEROUS).acquire().await.unwrap());
            }
        }
        guards
    };
    let passed = pass(times.least);
    let guards = in_time("the end of min_hold", next).await;
    assert!(times.asked.elapsed() + passed >= times.least);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// Also those of the same process, to which a release passes the hold on.
pub(crate) async fn waiters_wait_for_min_hold(locker: Locker) {
    let (name, least) = (fresh_name(), span() * 5);
    for (kind, request) in requests(&locker, &name) {
        let asked = Instant::now();
        let guard = request.clone().min_hold(least).acquire().await.unwrap();
        let fence = guard.fence();
        let mut next = queued(&locker, kind, &name, request.timeout(GENEROUS).acquire()).await;
        guard.release().await.unwrap();
        if span() > GENEROUS {
            assert!(poll!(&mut next).is_pending(), "{kind} is handed over at once");
        }
        let passed = pass(least);
        let next = in_time("the end of min_hold", next).await.unwrap();
        assert!(asked.elapsed() + passed >= least && next.fence() > fence, "{kind} is handed over early");
        next.release().await.unwrap();
    }
}

/// A hold that lasts longer than `min_hold` ends with its release, and one whose lease is longer takes no renewal.
pub(crate) async fn min_hold_that_is_over_keeps_nothing(locker: Locker) {
    let (name, least) = (fresh_name(), span() / 4);
    let request = locker.lock(&name).min_hold(least).lease(span() * 200).timeout(GENEROUS);
    let first = request.clone().acquire().await.unwrap();
    let (granted, passed) = (Instant::now(), pass(least));
    until("the end of min_hold", async || granted.elapsed() + passed >= least).await;
    first.release().await.unwrap();
    let second = in_time("the release", request.clone().acquire()).await.unwrap();
    drop(second);
    pass(least);
    let third = in_time("the end of the second min_hold", request.acquire()).await.unwrap();
    pass(least);
    third.release().await.unwrap();
}
