//! `#[rate_limit]`, `#[limit_concurrency]`, and locks that readers share.

use crate::support::{Done, LOCKER, start, take};
use locker::{ErrorKind, Locker, Quota, limit_concurrency, lock_on_argument, rate_limit};
use std::{
    future::{pending, ready},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{sync::Barrier, task::JoinSet};

#[rate_limit(size = 2, interval = "1h", args(user), timeout = 0, locker = LOCKER)]
async fn refused_at_once(user: &str) -> Done<&str> {
    Ok(ready(user).await)
}

#[rate_limit(size = 2, interval = "1h", args(0), algorithm = "fixed_window", timeout = 0, locker = LOCKER)]
fn fixed_window(user: &str) -> Done<&str> {
    Ok(user)
}

#[rate_limit(size = 1, interval = "1h", algorithm = "gcra", burst = 2, timeout = 0, locker = LOCKER)]
fn gcra() -> locker::Result<()> {
    Ok(())
}

#[rate_limit(size = 1, interval = "20ms", locker = LOCKER)]
async fn waits_for_its_reservation() -> Done {
    Ok(())
}

#[rate_limit(size = 1, interval = 0.02, timeout = "1m", locker = LOCKER)]
fn plain_waits_for_its_reservation() -> Done {
    Ok(())
}

#[rate_limit(size = 1, interval = INTERVAL, timeout = 0, on_error = when, locker = LOCKER)]
fn on_error() -> Option<Duration> {
    None
}

const INTERVAL: Duration = Duration::from_secs(3600);

#[allow(clippy::needless_pass_by_value, reason = "the form that `on_error` takes")]
fn when(error: locker::Error) -> Option<Duration> {
    error.retry_after()
}

struct Api {
    locker: Locker,
}

impl Api {
    #[rate_limit(size = Self::SIZE, interval = "1h", timeout = 0, locker = self.locker, name = "limits.api")]
    async fn call(&self) -> Done {
        Ok(())
    }

    const SIZE: u64 = 1;
}

#[tokio::test]
async fn calls_beyond_the_rate_get_retry_after() {
    assert_eq!(refused_at_once("a").await.unwrap(), "a");
    assert_eq!(refused_at_once("a").await.unwrap(), "a");
    assert_eq!(refused_at_once("a").await.unwrap_err().kind(), Some(ErrorKind::Limited));
    assert_eq!(refused_at_once("b").await.unwrap(), "b", "another argument");
    on_error();
    assert!(on_error().unwrap() > Duration::ZERO);
}

#[test]
fn every_algorithm_counts() {
    assert_eq!(fixed_window("a").unwrap(), "a");
    assert_eq!(fixed_window("a").unwrap(), "a");
    assert_eq!(fixed_window("a").unwrap_err().kind(), Some(ErrorKind::Limited));
    gcra().unwrap();
    gcra().unwrap();
    assert_eq!(gcra().unwrap_err().kind(), ErrorKind::Limited);
}

#[tokio::test]
async fn calls_wait_for_a_reservation_in_time() {
    for _ in 0..3 {
        waits_for_its_reservation().await.unwrap();
        plain_waits_for_its_reservation().unwrap();
    }
}

#[tokio::test]
async fn named_rate_limit_shares_its_key() {
    let api = Api { locker: Locker::memory() };
    api.call().await.unwrap();
    api.call().await.unwrap_err();
    let other = api.locker.rate_limiter("limits.api", Quota::token_bucket(1, INTERVAL));
    other.timeout(Duration::ZERO).acquire().await.unwrap();
}

#[limit_concurrency(size = 3, expr = 60, timeout = "5m", args(0), locker = LOCKER)]
async fn three_at_a_time(_: u8, inside: Arc<AtomicU32>) -> Done<u32> {
    let others = inside.fetch_add(1, SeqCst);
    tokio::task::yield_now().await;
    inside.fetch_sub(1, SeqCst);
    Ok(others)
}

#[limit_concurrency(size = 3, locker = LOCKER)]
async fn three_meet(all: Arc<Barrier>) -> Done {
    all.wait().await;
    Ok(())
}

#[limit_concurrency(size = 1, timeout = 0, guard = permit, locker = LOCKER)]
fn plain_permit(depth: u8) -> Done<String> {
    if depth > 0 {
        plain_permit(depth - 1)?;
    }
    Ok(permit.key().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphore_admits_at_most_its_size() {
    let (inside, mut calls) = (Arc::default(), JoinSet::new());
    for _ in 0..300 {
        calls.spawn(three_at_a_time(1, Arc::clone(&inside)));
    }
    let most = calls.join_all().await.into_iter().map(Result::unwrap).max();
    assert!(most.unwrap() < 3);
}

#[tokio::test]
async fn semaphore_admits_its_size_together() {
    let all = Arc::new(Barrier::new(3));
    let (a, b, c) = tokio::join!(three_meet(all.clone()), three_meet(all.clone()), three_meet(all));
    a.and(b).and(c).unwrap();
}

#[test]
fn plain_function_takes_a_permit() {
    assert!(plain_permit(0).unwrap().contains(":semaphore|"));
    assert_eq!(plain_permit(1).unwrap_err().kind(), Some(ErrorKind::TimedOut));
}

#[lock_on_argument(name = "limits.page", args(page), mode = "read", locker = LOCKER)]
async fn read(page: u8, all: &Barrier) -> Done<u8> {
    all.wait().await;
    Ok(page)
}

#[lock_on_argument(name = "limits.page", args(page), mode = "write", timeout = 0, locker = LOCKER)]
fn write(page: u8) -> Done<u8> {
    Ok(page)
}

#[lock_on_argument(name = "limits.page", args(page), timeout = 0, locker = LOCKER)]
fn exclusive(page: u8) -> Done<u8> {
    Ok(page)
}

#[tokio::test]
async fn readers_share_and_writers_do_not() {
    let all = Barrier::new(3);
    let mut reading = pin!(read(1, &all));
    assert!(start(reading.as_mut()).is_pending());
    assert_eq!(write(1).unwrap_err().kind(), Some(ErrorKind::TimedOut));
    assert_eq!(write(2).unwrap(), 2);
    let (a, b, _) = tokio::join!(reading, read(1, &all), all.wait());
    a.and(b).unwrap();
    assert_eq!(write(1).unwrap(), 1);
}

#[tokio::test]
async fn reader_and_plain_lock_conflict() {
    let all = Barrier::new(2);
    let mut reading = pin!(read(3, &all));
    assert!(start(reading.as_mut()).is_pending());
    assert_eq!(exclusive(3).unwrap_err().kind(), Some(ErrorKind::Conflict));
}

#[rate_limit(name = "limits.stacked", size = 1, interval = "1h", timeout = 0, args(id), locker = LOCKER)]
#[lock_on_argument(name = "limits.stacked", args(id), locker = LOCKER, guard = lease)]
#[limit_concurrency(name = "limits.stacked", size = 1, args(id), locker = LOCKER, on_lost = "error")]
async fn stacked(id: u8, wait: bool) -> Done<u64> {
    if wait {
        pending::<()>().await;
    }
    Ok(lease.fence())
}

#[tokio::test]
async fn all_attributes_stack() {
    assert!(stacked(1, false).await.unwrap() > 0);
    assert_eq!(stacked(1, false).await.unwrap_err().kind(), Some(ErrorKind::Limited));
    let mut waiting = pin!(stacked(2, true));
    assert!(start(waiting.as_mut()).is_pending());
    assert!(take("limits.stacked", &[&2]).is_none());
    assert_eq!(stacked(2, false).await.unwrap_err().kind(), Some(ErrorKind::Limited));
    assert!(take("limits.stacked", &[&1]).is_some());
}
