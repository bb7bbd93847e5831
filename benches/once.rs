//! Costs of records: calls that are skipped, results that are replayed, and callers that share a run.
//!
//! `cargo bench --bench once --all-features` starts its own servers and takes about five minutes.
//! `LOCKER_BENCH=memory,files,redis,postgres,etcd` selects stores. For each store:
//!
//! - a skip of `once_per` beside `try_acquire` of a lock that is held, which also asks the store once and gets nothing;
//! - a replay of a result of 1 to 512 KiB;
//! - 1,000 callers of one name that wait for a body of 100 ms and share its result (`keep = 0`): the time from the end
//!   of the body until all have it;
//! - on Redis, how many bytes a record takes.

#![allow(missing_docs, reason = "a measurement, not an interface")]

mod support;

use locker::{Error, Guard, Locker, OnceKeep, OncePer};
use locker_harness::{EtcdServer, PostgresServer, RedisServer};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use support::{compare, median, subject, title};
use tokio::runtime::Runtime;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const KIB: usize = 1024;

fn main() {
    let chosen = std::env::var("LOCKER_BENCH").unwrap_or_default();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.split(',').any(|choice| choice == name);
    if is_chosen("memory") {
        costs("memory", "memory://", 20_000);
    }
    if is_chosen("files") {
        let directory = tempfile::tempdir().expect("a temporary directory");
        costs("files", &format!("file://{}/locks", directory.path().display()), 5_000);
    }
    if is_chosen("redis")
        && let Some(server) = RedisServer::start()
    {
        costs("Redis", &server.url(), 2_000);
        bytes(&server);
    }
    if is_chosen("postgres")
        && let Some(server) = PostgresServer::with(&["fsync=on"])
    {
        costs("PostgreSQL", &server.url(), 1_000);
    }
    if is_chosen("etcd")
        && let Some(server) = EtcdServer::start()
    {
        costs("etcd", &server.url(), 500);
    }
}

fn costs(store: &str, url: &str, times: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let locker = runtime.block_on(Locker::connect(url)).expect("the store");
    skips(store, &runtime, &locker, times);
    replays(store, &runtime, &locker, times);
    shared(store, &runtime, &locker);
}

fn daily(locker: &Locker) -> OncePer {
    locker.once("skipped").per(366 * DAY)
}

/// Runs what succeeds at once. Returns whether it ran.
async fn ran(record: OncePer) -> bool {
    record.run(async |_: &Guard| Ok::<_, Error>(())).await.expect("a run or a skip").is_some()
}

fn skips(store: &str, runtime: &Runtime, locker: &Locker, times: u32) {
    let held = runtime.block_on(locker.lock("held").acquire()).expect("a lock");
    assert!(runtime.block_on(ran(daily(locker))), "the first call runs");
    let attempt = |times| {
        let started = Instant::now();
        runtime.block_on(async {
            for _ in 0..times {
                assert!(locker.lock("held").try_acquire().await.expect("an answer").is_none());
            }
        });
        started.elapsed()
    };
    let skip = |times| {
        let started = Instant::now();
        runtime.block_on(async {
            for _ in 0..times {
                assert!(!ran(daily(locker)).await);
            }
        });
        started.elapsed()
    };
    let subjects = vec![subject("try_acquire of a held lock", attempt), subject("skip", skip)];
    compare(&format!("{store}: a call that gets nothing"), times, 5, subjects);
    drop(held);
}

fn kept(locker: &Locker, name: &str) -> OnceKeep {
    locker.once(name).keep(DAY).max_size(512 * KIB)
}

/// Runs what returns a text of this size as JSON.
async fn text(record: OnceKeep, bytes: usize) -> String {
    record.run(async |_: &Guard| Ok::<_, Error>("x".repeat(bytes - 2))).await.expect("a result")
}

fn replays(store: &str, runtime: &Runtime, locker: &Locker, times: u32) {
    let sizes = [("replay of 1 KiB", 1), ("16 KiB", 16), ("64 KiB", 64), ("512 KiB", 512)];
    let subjects = sizes.map(|(title, size)| {
        let name = format!("kept {size}");
        runtime.block_on(text(kept(locker, &name), size * KIB));
        let replay = move |times| {
            let started = Instant::now();
            runtime.block_on(async {
                for _ in 0..times {
                    assert_eq!(text(kept(locker, &name), 2).await.len() + 2, size * KIB, "it is kept");
                }
            });
            started.elapsed()
        };
        subject(title, replay)
    });
    compare(&format!("{store}: a result that is replayed"), times / 10, 5, subjects.into());
}

fn shared(store: &str, runtime: &Runtime, locker: &Locker) {
    const CALLERS: usize = 1_000;
    let round = |number: usize| {
        let (ended, runs) = (Arc::new(std::sync::Mutex::new(None)), Arc::new(AtomicU64::new(0)));
        runtime.block_on(async {
            let callers: Vec<_> = (0..CALLERS)
                .map(|_| {
                    let record = locker.once(&format!("shared {number}")).keep(Duration::ZERO);
                    let record = record.timeout(Duration::from_secs(60));
                    let (ended, runs) = (Arc::clone(&ended), Arc::clone(&runs));
                    tokio::spawn(async move {
                        let body = async move |run: &Guard| {
                            runs.fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            *ended.lock().expect("nobody panics") = Some(Instant::now());
                            Ok::<_, Error>(run.fence())
                        };
                        record.run(body).await.expect("a result")
                    })
                })
                .collect();
            for caller in callers {
                caller.await.expect("a caller");
            }
        });
        let ended = ended.lock().expect("nobody panics").expect("a body");
        (ended.elapsed().as_secs_f64() * 1e3, runs.load(Ordering::Relaxed))
    };
    title(&format!("{store}: {CALLERS} callers that share a body of 100 ms"));
    let rounds: Vec<(f64, u64)> = (0..5).map(round).collect();
    let runs: u64 = rounds.iter().map(|(_, runs)| runs).sum();
    let times: Vec<f64> = rounds.into_iter().map(|(time, _)| time).collect();
    println!("  all have it after {:.1} ms (median of 5; {runs} bodies in all)", median(times));
}

fn bytes(server: &RedisServer) {
    title("Redis: bytes of a record");
    let usage = |key: &str| server.ask::<Option<u64>>("MEMORY", &["USAGE", key]).unwrap_or_default();
    for name in ["skipped", "kept 1", "kept 64"] {
        let key = format!("once:{name}");
        println!("  {name:<10} {:>8}", usage(&key) + usage(&format!("{{{key}}}:b")));
    }
}
