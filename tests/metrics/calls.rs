//! Calls: each is counted once, with its outcome.

use crate::Metrics;
use futures_util::{FutureExt, future::join_all};
use locker::{ErrorKind, Locker, Quota};
use locker_harness::{ScriptedStore, in_time, until};
use std::{sync::LazyLock, time::Duration};

const SHORT: Duration = Duration::from_millis(20);
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn each_outcome_of_a_lock_is_counted() {
    let (metrics, builder) = Metrics::new();
    let (locker, control) = locker::testing::memory_with(builder.retry_delay(SHORT)).unwrap();
    let guard = locker.lock("a").acquire().await.unwrap();
    locker.lock("b").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(metrics.acquires("lock", "granted"), 2);

    locker.lock("a").timeout(SHORT).acquire().await.unwrap_err();
    locker.lock("a").timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert!(locker.lock("a").try_acquire().await.unwrap().is_none());
    assert_eq!(metrics.acquires("lock", "timed_out"), 3);

    locker.lock("a").max_retry(2).acquire().await.unwrap_err();
    assert_eq!(metrics.acquires("lock", "retries_exhausted"), 1);

    let cancelled = [0, 1, 2].map(|_| Box::pin(locker.lock("a").acquire()));
    for mut call in cancelled {
        assert!(call.as_mut().now_or_never().is_none());
    }
    drop(locker.lock("a").acquire());
    assert_eq!(metrics.acquires("lock", "cancelled"), 3, "a call that was never polled is none");

    locker.lock("a").permits(2).acquire().await.unwrap_err();
    locker.lock("a").lease(Duration::ZERO).try_acquire().await.unwrap_err();
    assert_eq!(metrics.acquires("lock", "misused"), 2);

    locker.counter("c").add(1).await.unwrap();
    let key = locker.admin().key("counter", "c");
    locker.keyed_lock_at(key).acquire("me", HOUR, Duration::ZERO).await.unwrap_err();
    assert_eq!(metrics.acquires("lock", "conflict"), 1);

    let outage = control.outage();
    locker.lock("b").timeout(SHORT).acquire().await.unwrap_err();
    assert_eq!(metrics.acquires("lock", "unavailable"), 1);
    drop(outage);

    assert_eq!(metrics.all_acquires(), 2 + 3 + 1 + 3 + 2 + 1 + 1);
    guard.release().await.unwrap();
    metrics.assert_idle();
}

#[tokio::test]
async fn limits_and_reservations_are_counted() {
    let (metrics, builder) = Metrics::new();
    let (locker, control) = locker::testing::memory_with(builder).unwrap();
    let minute = Duration::from_secs(60);
    let limiter = locker.rate_limiter("mail", Quota::gcra(1, minute).burst(1)).timeout(HOUR);
    limiter.acquire().await.unwrap();
    assert!(limiter.try_acquire().await.unwrap().is_none());
    assert_eq!(limiter.clone().timeout(SHORT).acquire().await.unwrap_err().kind(), ErrorKind::Limited);
    assert_eq!([metrics.acquires("rate", "granted"), metrics.acquires("rate", "limited")], [1, 2]);
    assert_eq!(metrics.measured(), [0, 0], "none has waited");

    let mut reserved = Box::pin(limiter.acquire());
    assert!(reserved.as_mut().now_or_never().is_none());
    assert_eq!(metrics.waiting("rate"), 1);
    control.advance(minute);
    reserved.await.unwrap();
    assert_eq!([metrics.acquires("rate", "granted"), metrics.acquires("rate", "limited")], [2, 2]);

    let mut dropped = Box::pin(limiter.acquire());
    assert!(dropped.as_mut().now_or_never().is_none());
    drop(dropped);
    assert_eq!(metrics.acquires("rate", "cancelled"), 1);
    limiter.tokens(0).acquire().await.unwrap_err();
    assert_eq!(metrics.acquires("rate", "misused"), 1);
    assert_eq!((metrics.all_acquires(), metrics.measured()), (6, [2, 0]));
    metrics.assert_idle();
}

#[tokio::test]
async fn waits_of_other_primitives_are_counted() {
    let (metrics, locker) = Metrics::memory();
    let (event, latch, barrier) = (locker.event("e"), locker.latch("l", 1), locker.barrier("b", 2));
    let dog = locker.watchdog("w");
    let waits =
        async { tokio::join!(event.wait(HOUR), latch.wait(HOUR), barrier.wait(HOUR), dog.wait(SHORT)) };
    let changes = async {
        let kinds = ["event", "latch", "barrier", "watchdog"];
        assert_eq!(kinds.map(|kind| metrics.waiting(kind)), [1; 4]);
        event.send("now").await.unwrap();
        latch.count_down().await.unwrap();
        barrier.wait(HOUR).await.unwrap();
    };
    let ((event, latch, barrier, dog), ()) = tokio::join!(waits, changes);
    let ((), (), ()) = (event.map(drop).unwrap(), latch.unwrap(), barrier.unwrap());
    assert_eq!(dog.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(["event", "latch"].map(|kind| metrics.acquires(kind, "granted")), [1, 1]);
    assert_eq!([metrics.acquires("barrier", "granted"), metrics.acquires("watchdog", "timed_out")], [2, 1]);

    locker.barrier("b", 0).wait(HOUR).await.unwrap_err();
    locker.latch("l", u64::MAX).wait(HOUR).await.unwrap_err();
    locker.event("e").wait(HOUR * 24 * 366 * 20).await.unwrap_err();
    assert_eq!(["barrier", "latch", "event"].map(|kind| metrics.acquires(kind, "misused")), [1; 3]);
    assert_eq!((metrics.all_acquires(), metrics.measured()), (8, [4, 0]));
    metrics.assert_idle();
}

/// `timeout` of the limiter is wrong, and this call does not use it.
#[tokio::test]
async fn try_with_a_wrong_timeout_is_counted_once() {
    let (metrics, locker) = Metrics::memory();
    let quota = Quota::gcra(1, Duration::from_secs(1));
    let limiter = locker.rate_limiter("mail", quota).timeout(HOUR * 24 * 366 * 20);
    limiter.try_acquire().await.unwrap().unwrap();
    assert_eq!((metrics.acquires("rate", "granted"), metrics.all_acquires()), (1, 1));
    limiter.acquire().await.unwrap_err();
    assert_eq!((metrics.acquires("rate", "misused"), metrics.all_acquires()), (1, 2));
}

/// Each wake makes a waiter ask again, and each error, too.
#[tokio::test]
async fn waiter_that_asks_often_is_counted_once() {
    let (metrics, builder) = Metrics::new();
    let store = ScriptedStore::remote();
    let locker = builder.store(store.clone()).retry_delay(Duration::from_millis(1)).build().await.unwrap();
    let guard = locker.semaphore("s", 1).acquire().await.unwrap();
    let asked = store.requests().len();
    let mut waiting = Box::pin(locker.semaphore("s", 1).timeout(HOUR).acquire());
    until("it has asked ten times", async || {
        assert!(waiting.as_mut().now_or_never().is_none());
        store.requests().len() > asked + 10
    })
    .await;
    assert_eq!(metrics.waiting("semaphore"), 1);
    guard.release().await.unwrap();
    in_time("the permit", waiting).await.unwrap().release().await.unwrap();
    assert_eq!((metrics.acquires("semaphore", "granted"), metrics.measured()), (2, [1, 2]));
    metrics.assert_idle();
}

#[tokio::test]
async fn several_locks_are_several_calls() {
    let (metrics, locker) = Metrics::memory();
    let guards = locker.lock_all(["a", "b", "c"]).acquire().await.unwrap();
    assert_eq!((metrics.acquires("lock", "granted"), metrics.held("lock")), (3, 3));
    assert!(locker.lock_all(["0", "b"]).try_acquire().await.unwrap().is_none());
    assert_eq!([metrics.acquires("lock", "granted"), metrics.acquires("lock", "timed_out")], [4, 1]);
    assert_eq!(metrics.held("lock"), 3, "all or none");
    guards.release().await.unwrap();
    assert_eq!(metrics.measured(), [0, 4]);
    metrics.assert_idle();
}

static COUNTED: LazyLock<(Metrics, Locker)> = LazyLock::new(Metrics::memory);

#[locker::lock_on_argument(name = "bank.withdraw", args(card), locker = COUNTED.1)]
async fn withdraw(card: &str) -> locker::Result<()> {
    Ok(())
}

#[locker::rate_limit(args(client), size = 5, interval = "1h", locker = COUNTED.1)]
fn mail(client: &str) -> locker::Result<()> {
    Ok(())
}

/// A key or an argument as a label would be a metric without bound.
#[tokio::test]
async fn labels_are_functions_and_never_keys() {
    let (metrics, locker) = &*COUNTED;
    for number in 0..5 {
        withdraw(&format!("secret{number}")).await.unwrap();
        mail(&format!("secret{number}")).unwrap();
        let guard = locker.lock(&format!("secret{number}")).acquire().await.unwrap();
        let mut waiting = Box::pin(locker.lock(&format!("secret{number}")).acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
    }
    let text = metrics.0.render();
    assert!(!text.contains("secret"), "{text}");
    let functions = [
        r#"{kind="lock",function="",outcome="granted"}"#,
        r#"{kind="lock",function="bank.withdraw",outcome="granted"}"#,
        r#"{kind="rate",function="metrics::calls::mail",outcome="granted"}"#,
    ];
    let counts: Vec<_> = metrics.of("locker_acquires_total").into_iter().collect();
    assert_eq!(
        counts,
        functions.iter().map(|labels| (*labels).to_owned()).zip([10, 5, 5]).collect::<Vec<_>>()
    );
    metrics.assert_idle();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_equal_calls_of_many_tasks() {
    let (metrics, locker) = Metrics::memory();
    let tasks = (0..50_u64).map(|task| {
        let locker = locker.clone();
        tokio::spawn(async move {
            let mut outcomes = [0; 2];
            for turn in 0..40 {
                let request = locker.lock("hot").timeout(Duration::from_micros(200 * ((task + turn) % 5)));
                match request.acquire().await {
                    Ok(guard) => {
                        outcomes[0] += 1;
                        guard.release().await.unwrap();
                    }
                    Err(_) => outcomes[1] += 1,
                }
            }
            outcomes
        })
    });
    let ended: Vec<[u64; 2]> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    let sum = |at: usize| ended.iter().map(|outcomes| outcomes[at]).sum::<u64>();
    assert_eq!(
        [metrics.acquires("lock", "granted"), metrics.acquires("lock", "timed_out")],
        [sum(0), sum(1)]
    );
    assert_eq!((metrics.all_acquires(), metrics.measured()[1]), (2_000, sum(0)));
    metrics.assert_idle();
}

#[tokio::test]
async fn store_calls_are_measured_by_request() {
    let (metrics, builder) = Metrics::new();
    let store = ScriptedStore::remote();
    let locker = builder.store(store.clone()).build().await.unwrap();
    locker.lock("a").acquire().await.unwrap().release().await.unwrap();
    let count = |request: &str| {
        let labels = format!(r#"{{store="other",request="{request}",quantile="0"}}"#);
        let name = "locker_store_seconds";
        metrics.0.render().lines().filter(|line| line.starts_with(&format!("{name}{labels}"))).count()
    };
    assert_eq!(["acquire", "release", "renew"].map(count), [1, 1, 0]);
    let down = locker::Error::new(ErrorKind::Unavailable, "down");
    store.fail(|_| true, down);
    locker.lock("a").timeout(Duration::ZERO).acquire().await.unwrap_err();
    let errors: Vec<_> = metrics.of("locker_store_errors_total").into_iter().collect();
    assert_eq!(errors, [(r#"{store="other",kind="unavailable"}"#.to_owned(), 1)]);
}
