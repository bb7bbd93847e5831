//! Costs of a lock of the embedded store, beside a lock written by hand.
//!
//! `cargo bench --bench lock`. `LOCKER_BENCH=calls,refused,hand-off,memory` selects parts; `profile` is for
//! `benches/profile.py`. `--all-features` adds `metrics`.

#![allow(missing_docs, reason = "a measurement, not an interface")]

mod support;

use dashmap::DashMap;
use locker::{Locker, Quota, lock_on_argument};
use md5::{Digest, Md5};
use std::{
    collections::{HashMap, VecDeque},
    fmt::Write,
    future::Future,
    hint::black_box,
    pin::Pin,
    sync::{Arc, LazyLock, Mutex},
    task::Poll,
    time::{Duration, Instant},
};
use support::{compare, resident, subject, timed, title};
use tokio::{runtime::Runtime, sync::oneshot};

fn main() {
    locker::set_global(Locker::memory()).expect("the first");
    let chosen =
        std::env::var("LOCKER_BENCH").unwrap_or_else(|_| "calls,refused,hand-off,memory,metrics".to_owned());
    let parts: &[(&str, fn())] = &[
        ("calls", uncontended),
        ("refused", refused),
        ("hand-off", hand_off),
        ("memory", memory),
        #[cfg(feature = "metrics")]
        ("metrics", metrics),
        ("profile", profile),
    ];
    for (name, part) in parts {
        if chosen.split(',').any(|choice| choice == *name) {
            part();
        }
    }
}

/// Calls of one kind and nothing else, for a profiler.
fn profile() {
    static LOCKER: LazyLock<Locker> = LazyLock::new(Locker::memory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let what = std::env::var("LOCKER_BENCH_PROFILE").unwrap_or_default();
    let times = 6_400_000;
    let elapsed = match what.as_str() {
        "hand-off" => tasks(&runtime, times, |_| pass_on(&LOCKER)),
        "admission" => {
            let quota = Quota::gcra(1_000_000_000, Duration::from_secs(1));
            let names: Vec<_> = (0..1_000).map(|number| format!("client {number}")).collect();
            let mut names = names.iter().cycle();
            timed(|| {
                let limiter = LOCKER.rate_limiter(names.next().unwrap(), quota);
                black_box(at_once(limiter.acquire()).unwrap());
            })(times)
        }
        _ => tasks(&runtime, times, |task| locked(1, task)),
    };
    title(&format!("{what}, below a profiler"));
    println!("  {times} calls in {elapsed:?}");
}

async fn bare(card: u64, amount: u64) -> Result<u64, locker::Error> {
    Ok(black_box(card + amount))
}

#[lock_on_argument(expr = 10, args(0, 1))]
async fn locked(card: u64, amount: u64) -> Result<u64, locker::Error> {
    Ok(black_box(card + amount))
}

#[lock_on_argument(expr = 10, args(0, 1))]
fn locked_blocking(card: u64, amount: u64) -> Result<u64, locker::Error> {
    Ok(black_box(card + amount))
}

/// A lock written by hand: a map from key to waiters, under one mutex.
#[derive(Default)]
struct ByHand(Mutex<HashMap<String, VecDeque<oneshot::Sender<()>>>>);

static BY_HAND: LazyLock<ByHand> = LazyLock::new(ByHand::default);

impl ByHand {
    async fn acquire(&'static self, key: String) -> ByHandGuard {
        let waiting = {
            let mut keys = self.0.lock().unwrap();
            if let Some(queue) = keys.get_mut(&key) {
                let (sender, receiver) = oneshot::channel();
                queue.push_back(sender);
                Some(receiver)
            } else {
                keys.insert(key.clone(), VecDeque::new());
                None
            }
        };
        if let Some(waiting) = waiting {
            waiting.await.unwrap();
        }
        ByHandGuard(key)
    }
}

struct ByHandGuard(String);

impl Drop for ByHandGuard {
    fn drop(&mut self) {
        let mut keys = BY_HAND.0.lock().unwrap();
        while let Some(next) = keys.get_mut(&self.0).and_then(VecDeque::pop_front) {
            if next.send(()).is_ok() {
                return;
            }
        }
        keys.remove(&self.0);
    }
}

fn key_by_hand(card: u64, amount: u64) -> String {
    static FUNCTION: LazyLock<String> = LazyLock::new(|| hex(&Md5::digest("bench:by_hand")));
    format!("{}:lock|{}", *FUNCTION, hex(&Md5::digest(format!("{card}:{amount}"))))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What many write: a mutex for each key, which is never forgotten.
static MUTEXES: LazyLock<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>> = LazyLock::new(Mutex::default);
static DASH_MAP: LazyLock<DashMap<String, Arc<tokio::sync::Mutex<()>>>> = LazyLock::new(DashMap::default);

async fn map_of_mutexes(card: u64, amount: u64) -> Result<u64, locker::Error> {
    let mutex = Arc::clone(MUTEXES.lock().unwrap().entry(key_by_hand(card, amount)).or_default());
    let _guard = mutex.lock().await;
    Ok(black_box(card + amount))
}

async fn dash_map(card: u64, amount: u64) -> Result<u64, locker::Error> {
    let mutex = Arc::clone(&DASH_MAP.entry(key_by_hand(card, amount)).or_default());
    let _guard = mutex.lock().await;
    Ok(black_box(card + amount))
}

async fn by_hand(card: u64, amount: u64) -> Result<u64, locker::Error> {
    let _guard = BY_HAND.acquire(key_by_hand(card, amount)).await;
    Ok(black_box(card + amount))
}

fn calls<F: Future<Output = Result<u64, locker::Error>>>(
    runtime: &Runtime,
    call: impl Fn(u64, u64) -> F,
) -> impl FnMut(u32) -> Duration {
    move |times| {
        runtime.block_on(async {
            let started = Instant::now();
            for number in 0..u64::from(times) {
                call(black_box(4001), black_box(number % 64)).await.unwrap();
            }
            started.elapsed()
        })
    }
}

/// Calls one after another on one thread, without contention.
fn uncontended() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    compare(
        "one call, uncontended, async",
        50_000,
        31,
        vec![
            subject("bare function", calls(&runtime, bare)),
            subject("map of mutexes", calls(&runtime, map_of_mutexes)),
            subject("DashMap of mutexes", calls(&runtime, dash_map)),
            subject("by hand", calls(&runtime, by_hand)),
            subject("#[lock_on_argument]", calls(&runtime, locked)),
        ],
    );
    let mut number = 0;
    compare(
        "one call, uncontended, sync",
        50_000,
        31,
        vec![
            subject("by hand", {
                timed(|| {
                    let _ = black_box(at_once(by_hand(black_box(4001), black_box(7))));
                })
            }),
            subject(
                "#[lock_on_argument]",
                timed(move || {
                    number += 1;
                    let _ = black_box(locked_blocking(black_box(4001), black_box(number % 64)));
                }),
            ),
        ],
    );
    for threads in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().unwrap();
        compare(
            &format!("one call, 64 tasks on 64 different arguments, {threads} thread(s)"),
            64_000,
            15,
            vec![
                subject("map of mutexes", |times| tasks(&runtime, times, |task| map_of_mutexes(1, task))),
                subject("DashMap of mutexes", |times| tasks(&runtime, times, |task| dash_map(1, task))),
                subject("by hand", |times| tasks(&runtime, times, |task| by_hand(1, task))),
                subject("#[lock_on_argument]", |times| tasks(&runtime, times, |task| locked(1, task))),
            ],
        );
    }
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the lock is free"),
    }
}

/// Makes `times` calls from 64 tasks, and returns their duration.
fn tasks<F: Future + Send>(
    runtime: &Runtime,
    times: u32,
    call: impl Fn(u64) -> F + Copy + Send + 'static,
) -> Duration
where
    F::Output: Send,
{
    runtime.block_on(async {
        let started = Instant::now();
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                tokio::spawn(async move {
                    for _ in 0..times / 64 {
                        call(task).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        started.elapsed()
    })
}

/// Calls that do not wait, for a name that another caller holds.
fn refused() {
    let locker = Locker::memory();
    let _held = locker.lock("hot").acquire_blocking().unwrap();
    let mutex = Arc::clone(MUTEXES.lock().unwrap().entry("hot".to_owned()).or_default());
    let _other = mutex.try_lock().unwrap();
    compare(
        "one call that does not wait, refused",
        100_000,
        15,
        vec![
            subject(
                "map of mutexes",
                timed(|| {
                    let mutex = Arc::clone(MUTEXES.lock().unwrap().entry("hot".to_owned()).or_default());
                    assert!(black_box(mutex.try_lock()).is_err());
                }),
            ),
            subject(
                "locker.lock(..).try_acquire()",
                timed(|| assert!(at_once(locker.lock("hot").try_acquire()).unwrap().is_none())),
            ),
        ],
    );
}

/// One pair of acquire and release, with and without a recorder.
#[cfg(feature = "metrics")]
fn metrics() {
    let pair = |locker: Locker| {
        timed(move || {
            let guard = at_once(locker.lock(black_box("free")).acquire()).unwrap();
            at_once(guard.release()).unwrap();
        })
    };
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let counted = Locker::builder().store(locker::stores::Memory::new()).recorder(Arc::new(recorder));
    let mut counted = pair(counted.build_blocking().unwrap());
    compare(
        "one lock acquired and released",
        20_000,
        60,
        vec![
            subject("without a recorder", pair(Locker::memory())),
            subject("with Prometheus", move |times| {
                handle.run_upkeep();
                counted(times)
            }),
        ],
    );
}

async fn pass_on(locker: &Locker) {
    let guard = locker.lock("hot").acquire().await.unwrap();
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
}

/// All tasks want the same lock and yield while they hold it: every release is a hand-off.
fn hand_off() {
    static FAIR: LazyLock<tokio::sync::Mutex<()>> = LazyLock::new(tokio::sync::Mutex::default);
    static LOCKER: LazyLock<Locker> = LazyLock::new(Locker::memory);
    for threads in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().unwrap();
        compare(
            &format!("one hand-off, 64 tasks on one key, {threads} thread(s)"),
            64_000,
            15,
            vec![
                subject("tokio::sync::Mutex", |times| {
                    tasks(&runtime, times, |_| async {
                        let _guard = FAIR.lock().await;
                        tokio::task::yield_now().await;
                    })
                }),
                subject("by hand", |times| {
                    tasks(&runtime, times, |_| async {
                        let _guard = BY_HAND.acquire("hot".into()).await;
                        tokio::task::yield_now().await;
                    })
                }),
                subject("locker.lock(..)", |times| tasks(&runtime, times, |_| pass_on(&LOCKER))),
            ],
        );
    }
}

/// The memory of a waiter and of a forgotten name.
fn memory() {
    const MANY: usize = 100_000;
    title("memory and idle cost");
    tasks_that_wait();
    let locker = Locker::memory();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let held = locker.lock("hot").acquire().await.unwrap();
        let mut waiters: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::with_capacity(MANY);
        for _ in 0..MANY {
            let mut waiter = Box::pin(locker.lock("hot").timeout(Duration::MAX).acquire());
            std::future::poll_fn(|context| {
                assert!(waiter.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            waiters.push(waiter);
        }
        let cpu = processor_time();
        tokio::time::sleep(Duration::from_secs(3)).await;
        println!("  processor time of {MANY} waiters in 3 s: {:?}", processor_time().saturating_sub(cpu));
        drop(waiters);
        held.release().await.unwrap();
    });
    for round in 1..=3 {
        let before = resident();
        for number in 0..1_000_000 {
            drop(locker.lock(&format!("{round} {number}")).acquire_blocking().unwrap());
        }
        println!(
            "  1,000,000 forgotten names, round {round}: {} bytes in all",
            resident().saturating_sub(before)
        );
    }
}

/// The memory of waiters in tasks of tokio, each with what its name keeps. All names are held before.
fn tasks_that_wait() {
    const MANY: usize = 50_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locker = Locker::memory();
    let mutex = Arc::new(tokio::sync::Mutex::new(()));
    let bytes = |what: &str, waiting: &dyn Fn(usize) -> tokio::task::JoinHandle<()>| {
        runtime.block_on(async {
            // Vectors and tables have grown before the measurement begins; the second half is measured.
            let mut waiters = Vec::with_capacity(2 * MANY);
            for number in 0..MANY {
                waiters.push(waiting(number));
            }
            tokio::task::yield_now().await;
            let before = resident();
            for number in MANY..2 * MANY {
                waiters.push(waiting(number));
            }
            tokio::task::yield_now().await;
            println!("  {what:<50} {} bytes", (resident() - before) / MANY);
            // They wait to the end: the next ones would get their memory.
            assert!(!waiters.iter().any(tokio::task::JoinHandle::is_finished));
        });
    };
    let _held = mutex.try_lock().unwrap();
    bytes("a task that waits for tokio::sync::Mutex:", &|_| {
        let mutex = Arc::clone(&mutex);
        runtime.spawn(async move { drop(mutex.lock().await) })
    });
    let _hot = locker.lock("hot").acquire_blocking().unwrap();
    bytes("a task that waits for one name:", &|_| {
        let locker = locker.clone();
        runtime.spawn(async move { drop(locker.lock("hot").acquire().await) })
    });
    let _own: Vec<_> =
        (0..2 * MANY).map(|number| locker.lock(&number.to_string()).acquire_blocking().unwrap()).collect();
    bytes("a task that waits for a name of its own:", &|number| {
        let locker = locker.clone();
        runtime.spawn(async move { drop(locker.lock(&number.to_string()).acquire().await) })
    });
}

/// Returns the processor time of all threads.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<i64> = stat.split(' ').filter_map(|field| field.parse().ok()).collect();
    Duration::from_millis(fields.get(11..13).map_or(0, |ticks| ticks.iter().sum::<i64>()).unsigned_abs() * 10)
}
