//! Functions that run once in each slot, of every shape.

use crate::support::{Done, Failure, LOCKER};
use locker::{once_per, rate_limit};
use std::{
    future::ready,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[once_per("366d", name = "once plain", args(tenant), locker = LOCKER)]
fn plain(tenant: u64) -> Done<Option<u64>> {
    Ok(Some(tenant))
}

#[once_per("366d", name = "once async", args(tenant), from = "3h", timeout = 0, guard = run, locker = LOCKER)]
async fn in_future(tenant: &str) -> Done<Option<String>> {
    ready(()).await;
    run.check()?;
    Ok(Some(format!("{tenant} {}", run.key())))
}

#[once_per(every = YEAR, name = "once unit", early = "180d", after_crash = "refuse", lease = 10, locker = LOCKER)]
async fn unit(runs: &AtomicUsize) -> Done {
    runs.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn skipped() -> u64 {
    7
}

#[once_per("366d", name = "once on skip", on_skip = skipped, locker = LOCKER)]
fn on_skip() -> Done<u64> {
    Ok(1)
}

fn none(_: locker::Error) -> Option<u64> {
    None
}

#[once_per("366d", name = "once on error", on_error = none, locker = LOCKER)]
fn on_error() -> Option<u64> {
    Some(1)
}

#[once_per("366d", name = "once fails", locker = LOCKER)]
fn fails(times: &AtomicUsize) -> Done<Option<u8>> {
    if times.fetch_add(1, Ordering::Relaxed) < 2 {
        return Err(Failure::Own);
    }
    Ok(Some(1))
}

#[rate_limit(name = "once limit", size = 100, interval = 1, locker = LOCKER)]
#[once_per("366d", name = "once below", args(id), locker = LOCKER)]
async fn below_a_limit(id: String) -> Done<Option<String>> {
    ready(()).await;
    Ok(Some(id))
}

struct Shop(u64);

impl Shop {
    #[once_per("366d", name = "once method", args(self.0), locker = LOCKER)]
    fn close(&mut self) -> Done<Option<u64>> {
        self.0 += 1;
        Ok(Some(self.0))
    }
}

#[tokio::test]
async fn functions_of_every_shape_run_once() {
    assert_eq!((plain(1).unwrap(), plain(1).unwrap(), plain(2).unwrap()), (Some(1), None, Some(2)));
    let ran = in_future("a").await.unwrap().unwrap();
    assert!(ran.starts_with("a ") && ran.contains(":once|"), "{ran}");
    assert_eq!(in_future("a").await.unwrap(), None);
    let runs = AtomicUsize::new(0);
    for _ in 0..3 {
        unit(&runs).await.unwrap();
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!((on_skip().unwrap(), on_skip().unwrap()), (1, 7));
    assert_eq!((on_error(), on_error()), (Some(1), None));
    let times = AtomicUsize::new(0);
    let results: Vec<_> = (0..4).map(|_| fails(&times).ok()).collect();
    assert_eq!(results, [None, None, Some(Some(1)), Some(None)]);
    assert_eq!(below_a_limit("i".into()).await.unwrap(), Some("i".into()));
    assert_eq!(below_a_limit("i".into()).await.unwrap(), None);
    let mut shop = Shop(1);
    assert_eq!(shop.close().unwrap(), Some(2));
    assert_eq!(Shop(1).close().unwrap(), None);
    assert_eq!(shop.close().unwrap(), Some(3));
}
