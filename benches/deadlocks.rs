//! What the search for deadlocks costs, and how long it takes.
//!
//! `cargo bench --bench deadlocks --all-features` starts its own servers and takes about three minutes.
//! `LOCKER_BENCH=bytes,short,long,found` selects parts:
//!
//! - `bytes`: the memory of a waiting task, with the search and without it;
//! - `short`: the commands that a server of Redis runs for 1,000 waits of half a second;
//! - `long`: those per second of 1,000 waits that last;
//! - `found`: from the begin of the last wait of a circle of two to its error, on each store.

#![allow(missing_docs, clippy::cast_precision_loss, reason = "a measurement, not an interface")]

#[allow(dead_code, reason = "not in every benchmark")]
mod support;
#[allow(dead_code, reason = "not in every benchmark")]
mod tasks;

use locker::{ErrorKind, Guard, Locker, Result};
use locker_harness::{EtcdServer, PostgresServer, RedisServer};
use std::{
    ops::Range,
    process::Command,
    time::{Duration, Instant},
};
use support::{resident, title};
use tasks::runtime;
use tokio::{task::JoinSet, time::sleep};

const MINUTE: Duration = Duration::from_secs(60);
const WAITS: usize = 1_000;

fn main() {
    if let Some(deadlocks) =
        std::env::args().find_map(|argument| argument.strip_prefix("bytes=")?.parse().ok())
    {
        return bytes_of(deadlocks);
    }
    let chosen = std::env::var("LOCKER_BENCH").unwrap_or_default();
    let parts: [(&str, fn()); 4] = [("bytes", bytes), ("short", short), ("long", long), ("found", found)];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.split(',').any(|choice| choice == name) {
            part();
        }
    }
}

/// Lockers of different numbers share no connections.
async fn apart(url: &str, number: usize, deadlocks: bool) -> Locker {
    let timeout = Duration::from_secs(1) + Duration::from_micros(number as u64);
    let builder = Locker::builder().url(url).lease(5 * MINUTE).command_timeout(timeout);
    builder.deadlocks(deadlocks).build().await.expect("a store")
}

/// Begins waits of `timeout` for the names of these numbers. If there are guards, each wait is inside of its own.
fn wait(
    locker: &Locker,
    numbers: Range<usize>,
    timeout: Duration,
    guards: &[Guard],
) -> JoinSet<Result<Guard>> {
    let mut waits = JoinSet::new();
    for number in numbers {
        let mut request = locker.lock(&name(number)).timeout(timeout);
        if let Some(guard) = guards.get(number) {
            request = request.holding(guard);
        }
        waits.spawn(request.acquire());
    }
    waits
}

fn name(number: usize) -> String {
    format!("wanted {number}")
}

async fn hold(locker: &Locker, name: impl Fn(usize) -> String, many: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..many {
        guards.push(locker.lock(&name(number)).acquire().await.expect("a free name"));
    }
    guards
}

fn bytes() {
    title("bytes of a task that waits for a name of its own, for three seconds");
    // A process of its own for each: the next one would use the memory of the one before.
    for deadlocks in [false, true] {
        let mut process = Command::new(std::env::current_exe().expect("this program"));
        process.arg(format!("bytes={deadlocks}")).status().expect("another process");
    }
}

fn bytes_of(deadlocks: bool) {
    const MANY: usize = 50_000;
    runtime().block_on(async {
        let builder = Locker::builder().url("memory://").lease(5 * MINUTE).deadlocks(deadlocks);
        let locker = builder.build().await.expect("a store");
        let guards = hold(&locker, name, 2 * MANY).await;
        // Tables have grown before the measurement begins.
        let first = wait(&locker, 0..MANY, 5 * MINUTE, &[]);
        sleep(Duration::from_secs(3)).await;
        let before = resident();
        let second = wait(&locker, MANY..2 * MANY, 5 * MINUTE, &[]);
        sleep(Duration::from_secs(3)).await;
        println!("  deadlocks({deadlocks}) {:>20} bytes", resident().saturating_sub(before) / MANY);
        drop((first, second, guards));
    });
}

/// Returns the number of commands that the server has run, also those in scripts.
fn commands(server: &RedisServer) -> f64 {
    let statistics: String = server.ask("INFO", &["stats"]);
    let count = statistics.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.and_then(|count| count.parse().ok()).expect("a number")
}

fn short() {
    title(&format!("commands on Redis for {WAITS} waits of 0.5 s"));
    for deadlocks in [false, true] {
        let Some(server) = RedisServer::start() else { return };
        runtime().block_on(async {
            let holder = apart(&server.url(), 0, deadlocks).await;
            let (locker, _guards) =
                (apart(&server.url(), 1, deadlocks).await, hold(&holder, name, WAITS).await);
            drop(locker.lock("first").acquire().await);
            sleep(Duration::from_secs(2)).await;
            let before = commands(&server);
            wait(&locker, 0..WAITS, Duration::from_millis(500), &[]).join_all().await;
            locker.settled().await;
            println!("  deadlocks({deadlocks}) {:>20} commands", commands(&server) - before);
        });
    }
}

fn long() {
    title(&format!("commands per second on Redis of {WAITS} waits that last"));
    for (deadlocks, inside) in [(false, false), (true, false), (true, true)] {
        let Some(server) = RedisServer::start() else { return };
        runtime().block_on(async {
            let holder = apart(&server.url(), 0, deadlocks).await;
            let locker = apart(&server.url(), 1, deadlocks).await;
            let _guards = hold(&holder, name, WAITS).await;
            let own = hold(&locker, |number| format!("held {number}"), if inside { WAITS } else { 0 }).await;
            let waits = wait(&locker, 0..WAITS, 5 * MINUTE, &own);
            sleep(Duration::from_secs(5)).await;
            let (before, watched) = (commands(&server), Duration::from_secs(30));
            sleep(watched).await;
            let rate = (commands(&server) - before) / watched.as_secs_f64();
            println!("  deadlocks({deadlocks}), inside of holds: {inside} {rate:>12.1} per second");
            drop(waits);
        });
    }
}

fn found() {
    title("time from the last wait of a circle of two to its error");
    let folder = tempfile::tempdir().expect("a folder");
    let (redis, postgres, etcd) =
        (RedisServer::start(), PostgresServer::with(&["max_connections=500"]), EtcdServer::start());
    let stores = [
        ("memory", Some("memory://".to_owned())),
        ("files", Some(format!("file://{}", folder.path().display()))),
        ("Redis", redis.as_ref().map(RedisServer::url)),
        ("PostgreSQL", postgres.as_ref().map(PostgresServer::url)),
        ("etcd", etcd.as_ref().map(EtcdServer::url)),
    ];
    for (store, url) in stores {
        let Some(url) = url else { continue };
        let mut times = runtime().block_on(async {
            let mut circles = JoinSet::new();
            for number in 0..16 {
                let url = url.clone();
                circles.spawn(async move { circle(&url, number).await });
            }
            circles.join_all().await
        });
        times.sort_unstable();
        let seconds =
            [times[0], times[times.len() / 2], times[times.len() - 1]].map(|time| time.as_secs_f64());
        println!("  {store:<12} {:.1} s to {:.1} s, median {:.1} s", seconds[0], seconds[2], seconds[1]);
    }
}

/// Returns how long a circle lasts. Its second wait begins up to six seconds after the first.
async fn circle(url: &str, number: usize) -> Duration {
    let one = apart(url, 2 * number, true).await;
    let other = apart(url, 2 * number + 1, true).await;
    let [first, second] = [0, 1].map(|half| format!("{number} {half}"));
    let held = one.lock(&first).acquire().await.expect("a free name");
    let also = other.lock(&second).acquire().await.expect("a free name");
    let wait = one.lock(&second).timeout(MINUTE).holding(&held).acquire();
    let one = tokio::spawn(async move { (wait.await.map(drop), drop(held)).0 });
    // When the second wait begins.
    sleep(Duration::from_millis(number as u64 * 400)).await;
    let started = Instant::now();
    let ended = other.lock(&first).timeout(MINUTE).holding(&also).acquire().await.map(drop);
    let time = started.elapsed();
    drop(also);
    let ended = [ended, one.await.expect("a task")];
    let errors: Vec<_> = ended.into_iter().filter_map(Result::err).map(|error| error.kind()).collect();
    assert_eq!(errors, [ErrorKind::Deadlock]);
    time
}
