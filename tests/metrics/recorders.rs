//! Recorders of other kinds than that of Prometheus.

use futures_util::FutureExt;
use locker::{Locker, Quota, stores::Memory};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Does something at each call.
#[derive(Clone)]
struct Calling(Arc<dyn Fn(f64) + Send + Sync>);

impl CounterFn for Calling {
    fn increment(&self, _: u64) {
        (self.0)(1.0);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Calling {
    fn increment(&self, value: f64) {
        (self.0)(value);
    }

    fn decrement(&self, value: f64) {
        (self.0)(value);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Calling {
    fn record(&self, value: f64) {
        (self.0)(value);
    }
}

impl Recorder for Calling {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        (self.0)(0.0);
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        (self.0)(0.0);
        Counter::from_arc(Arc::new(self.clone()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(self.clone()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(self.clone()))
    }
}

/// Waits once for a lock.
async fn use_a_lock(locker: &Locker) {
    let guard = locker.lock("a").acquire().await.unwrap();
    let mut waiting = Box::pin(locker.lock("a").acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// For example to limit how often it sends.
#[tokio::test]
async fn recorder_may_call_the_locker_that_it_records() {
    static OWN: OnceLock<Locker> = OnceLock::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let recorder = Calling(Arc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        let quota = Quota::gcra(1, Duration::from_secs(1)).burst(1_000_000);
        OWN.get().unwrap().rate_limiter("sends", quota).try_acquire_blocking().unwrap().unwrap();
        drop(OWN.get().unwrap().lock("sends").try_acquire_blocking().unwrap().unwrap());
    }));
    let builder = Locker::builder().recorder(Arc::new(recorder)).store(Memory::new());
    OWN.set(builder.build().await.unwrap()).unwrap();
    use_a_lock(OWN.get().unwrap()).await;
    assert!(calls.load(Ordering::Relaxed) > 10);
}

#[tokio::test]
async fn panicking_recorder_changes_no_result() {
    let recorder = Calling(Arc::new(|_| panic!("the disk is full")));
    let locker = Locker::builder().recorder(Arc::new(recorder)).store(Memory::new()).build().await.unwrap();
    use_a_lock(&locker).await;
}

/// Some send the change as text with a sign of their own.
#[tokio::test]
async fn changes_of_gauges_are_positive() {
    let least = Arc::new(OnceLock::new());
    let negative = Arc::clone(&least);
    let recorder = Calling(Arc::new(move |value| {
        if value < 0.0 {
            negative.get_or_init(|| value);
        }
    }));
    let locker = Locker::builder().recorder(Arc::new(recorder)).store(Memory::new()).build().await.unwrap();
    use_a_lock(&locker).await;
    assert_eq!(least.get(), None);
}
