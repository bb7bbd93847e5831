//! What a lock on Redis costs, beside raw commands on the same kind of connection, another crate, and polling.
//!
//! Raw is `SET NX PX` and a compare-and-delete script.
//!
//! `cargo bench --bench redis` starts its own server. `LOCKER_BENCH=pairs,server,rslock,blocking,commands,idle,hand_off`
//! chooses.

#![allow(missing_docs, clippy::cast_precision_loss, reason = "a measurement, not an interface")]

mod support;

use locker::Locker;
use locker_harness::{RedisServer, in_both_places};
use redis::{AsyncConnectionConfig, Client, Script, aio::MultiplexedConnection};
use std::{
    fmt::Write,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::{compare, median, subject};
use tokio::{runtime::Runtime, task::JoinSet};

const RAW_RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A name to choose it by, and what it measures.
type Part = (&'static str, fn(&RedisServer));

fn main() {
    if let Some(role) =
        std::env::args().find_map(|argument| argument.strip_prefix("hand-off=").map(str::to_owned))
    {
        return contender(&role);
    }
    let Some(server) = RedisServer::start() else { return };
    let chosen = std::env::var("LOCKER_BENCH").unwrap_or_default();
    let parts: [Part; 7] = [
        ("pairs", pairs),
        ("server", server_time),
        ("blocking", blocking),
        ("commands", commands_per_grant),
        ("rslock", against_rslock),
        ("hand_off", hand_off),
        ("idle", idle_waiters),
    ];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.split(',').any(|choice| choice == name) {
            part(&server);
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn raw_connection(server: &RedisServer) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(1)));
    let info = redis::IntoConnectionInfo::into_connection_info(server.url()).expect("an address");
    let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp)).expect("a client");
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

async fn raw_pair(connection: &mut MultiplexedConnection, release: &Script, key: &str) {
    let token = uuid::Uuid::new_v4().simple().to_string();
    let answer: Option<String> = redis::cmd("SET")
        .arg(key)
        .arg(&token)
        .arg("NX")
        .arg("PX")
        .arg(10_000)
        .query_async(connection)
        .await
        .unwrap();
    assert!(answer.is_some());
    let released: i64 = release.key(key).arg(&token).invoke_async(connection).await.unwrap();
    assert_eq!(released, 1);
}

/// `tasks` tasks do `times` pieces of work between them, each on names of its own.
fn spread<F>(runtime: &Runtime, tasks: u32, times: u32, work: impl Fn(u32, u32) -> F) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let started = Instant::now();
    runtime.block_on(async {
        let mut set = JoinSet::new();
        for task in 0..tasks {
            set.spawn(work(task, times / tasks));
        }
        while let Some(done) = set.join_next().await {
            done.expect("a task");
        }
    });
    started.elapsed()
}

/// `times` acquires and releases by `tasks` tasks.
fn locked(runtime: &Runtime, locker: &Locker, tasks: u32, times: u32) -> Duration {
    spread(runtime, tasks, times, |task, times| {
        let locker = locker.clone();
        async move {
            let name = task.to_string();
            for _ in 0..times {
                locker.lock(&name).acquire().await.unwrap().release().await.unwrap();
            }
        }
    })
}

/// The same with raw commands.
fn raw(runtime: &Runtime, connection: &MultiplexedConnection, tasks: u32, times: u32) -> Duration {
    spread(runtime, tasks, times, |task, times| {
        let (mut connection, release) = (connection.clone(), Script::new(RAW_RELEASE));
        async move {
            for _ in 0..times {
                raw_pair(&mut connection, &release, &format!("raw:{task}")).await;
            }
        }
    })
}

/// How much of its processor's time the server needs for a pair.
fn server_time(server: &RedisServer) {
    let runtime = runtime();
    let locker = runtime.block_on(Locker::connect(&server.url())).expect("a connection");
    let connection = runtime.block_on(raw_connection(server));
    let used = || -> f64 {
        let statistics: String = server.ask("INFO", &["cpu"]);
        let lines = statistics.lines().filter_map(|line| line.split_once("_main_thread:"));
        let seconds: Vec<f64> = lines.map(|(_, seconds)| seconds.parse().expect("seconds")).collect();
        assert_eq!(seconds.len(), 2, "system and user time of the main thread (Redis 6.2 and later)");
        seconds.iter().sum()
    };
    let per_pair = |times: u32, run: &dyn Fn(u32) -> Duration| {
        run(times / 10);
        let before = used();
        run(times);
        (used() - before) * 1e6 / f64::from(times)
    };
    println!("\nprocessor time of the server per pair");
    for (tasks, times) in [(1, 10_000), (16, 60_000), (64, 60_000)] {
        let ours = per_pair(times, &|times| locked(&runtime, &locker, tasks, times));
        let theirs = per_pair(times, &|times| raw(&runtime, &connection, tasks, times));
        println!("  {tasks:>2} tasks   locker {ours:>6.1} us   raw {theirs:>6.1} us");
    }
}

fn pairs(server: &RedisServer) {
    let runtime = runtime();
    let locker = runtime.block_on(Locker::connect(&server.url())).expect("a connection");
    let connection = runtime.block_on(raw_connection(server));
    // As the locker's: on a thread of its own, where a busy executor starves no renewal.
    let apart = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let apart = apart.expect("a thread");
    let connection_apart = apart.block_on(raw_connection(server));
    in_both_places(server, |place| {
        for tasks in [1, 16, 64] {
            let times = if tasks == 1 { 3_000 } else { 40_000 };
            let title = format!("acquire + release, {tasks} tasks, time per pair{place}");
            let subjects = vec![
                subject("locker", |times| locked(&runtime, &locker, tasks, times)),
                subject("raw, connection on its own thread", |times| {
                    raw(&runtime, &connection_apart, tasks, times)
                }),
                subject("raw, connection in the same runtime", |times| {
                    raw(&runtime, &connection, tasks, times)
                }),
            ];
            compare(&title, times, 9, subjects);
        }
    });
}

fn blocking(server: &RedisServer) {
    let locker = Locker::connect_blocking(&server.url()).expect("a connection");
    let info = redis::IntoConnectionInfo::into_connection_info(server.url()).expect("an address");
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let mut connection = Client::open(info.set_tcp_settings(tcp)).unwrap().get_connection().unwrap();
    let release = Script::new(RAW_RELEASE);
    let raw = support::timed(move || {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let set =
            redis::cmd("SET").arg("raw").arg(&token).arg("NX").arg("PX").arg(10_000).query(&mut connection);
        assert!(set.unwrap_or(None::<String>).is_some());
        assert_eq!(release.key("raw").arg(&token).invoke::<i64>(&mut connection).unwrap(), 1);
    });
    let ours = support::timed(|| {
        locker.lock("blocking").acquire_blocking().unwrap().release_blocking().unwrap();
    });
    let subjects =
        vec![subject("locker, blocking", ours), subject("sync client, SET NX PX + compare-and-delete", raw)];
    compare("acquire + release, blocking, time per pair", 3_000, 9, subjects);
}

/// Commands that clients have sent; what scripts do inside is not one.
fn commands(server: &RedisServer) -> u64 {
    let statistics: String = server.ask("INFO", &["commandstats"]);
    let calls = |line: &str| {
        let (name, rest) = line.split_once(":calls=")?;
        let count = rest.split(',').next()?.parse::<u64>().ok()?;
        matches!(name, "cmdstat_evalsha" | "cmdstat_eval" | "cmdstat_ping").then_some(count)
    };
    statistics.lines().filter_map(calls).sum()
}

fn commands_per_grant(server: &RedisServer) {
    let runtime = runtime();
    let locker = runtime.block_on(Locker::connect(&server.url())).expect("a connection");
    println!("\ncommands per grant");
    for tasks in [1, 64] {
        let (before, grants) = (commands(server), 6_400);
        spread(&runtime, tasks, grants, |_, times| {
            let locker = locker.clone();
            async move {
                for _ in 0..times {
                    let guard =
                        locker.lock("one name").timeout(Duration::from_secs(60)).acquire().await.unwrap();
                    guard.release().await.unwrap();
                }
            }
        });
        let sent = commands(server) - before;
        println!("  {tasks:>2} tasks on one name {:>26.3}", sent as f64 / f64::from(grants));
    }
}

fn against_rslock(server: &RedisServer) {
    const TASKS: u32 = 16;
    let runtime = runtime();
    let locker = runtime.block_on(Locker::connect(&server.url())).expect("a connection");
    let manager = rslock::LockManager::new(vec![server.url()]);
    let theirs = |times| {
        spread(&runtime, TASKS, times, |_, times| {
            let mut manager = manager.clone();
            manager.set_retry(u32::MAX, Duration::from_millis(1));
            async move {
                for _ in 0..times {
                    let lock = loop {
                        if let Ok(lock) = manager.lock("rslock", Duration::from_secs(10)).await {
                            break lock;
                        }
                    };
                    manager.unlock(&lock).await;
                }
            }
        })
    };
    let ours = |times| {
        spread(&runtime, TASKS, times, |_, times| {
            let locker = locker.clone();
            async move {
                for _ in 0..times {
                    let guard = locker.lock("hot").timeout(Duration::from_secs(60)).acquire().await.unwrap();
                    guard.release().await.unwrap();
                }
            }
        })
    };
    let subjects = vec![subject("locker", ours), subject("rslock, retry every 1 ms", theirs)];
    compare("16 tasks on one name, time per grant", 640, 7, subjects);
}

/// Two processes want one key; how long is it free between them?
fn hand_off(server: &RedisServer) {
    println!("\nhand-off between two processes on one key, time during which nobody holds it");
    for mode in ["locker", "poll 1 ms", "poll 100 ms"] {
        let turns = if mode == "poll 100 ms" { 60 } else { 1_500 };
        let _: i64 = server.ask("DEL", &["hand-offs"]);
        let start = |who: &str| -> Child {
            Command::new(std::env::current_exe().expect("this program"))
                .arg(format!("hand-off={mode};{who};{turns};{}", server.url()))
                .stdout(Stdio::null())
                .spawn()
                .expect("another process")
        };
        let children = ["a", "b"].map(start);
        for mut child in children {
            assert!(child.wait().expect("its end").success());
        }
        let log: Vec<String> = server.ask("LRANGE", &["hand-offs", "0", "-1"]);
        let entries: Vec<(&str, u64, u64)> = log
            .iter()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
            })
            .collect();
        let mut sorted = entries.clone();
        sorted.sort_by_key(|(_, from, _)| *from);
        let gap = |pair: &[(&str, u64, u64)]| {
            (pair[0].0 != pair[1].0).then(|| pair[1].1.saturating_sub(pair[0].2) as f64 / 1e3)
        };
        let mut gaps: Vec<f64> = sorted.windows(2).filter_map(gap).collect();
        gaps.sort_by(f64::total_cmp);
        let p99 = gaps.get(gaps.len() * 99 / 100).copied().unwrap_or(f64::NAN);
        let count = gaps.len();
        println!("  {mode:<12} p50 {:>9.0} us   p99 {p99:>9.0} us   ({count} hand-offs)", median(gaps));
    }
}

fn now_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// One of the two processes: notes when it came in and when it began to leave.
fn contender(role: &str) {
    let mut words = role.splitn(4, ';');
    let mut word = || words.next().expect("four words");
    let (mode, who, turns, url) = (word(), word(), word().parse::<usize>().expect("a number"), word());
    let client = Client::open(url).expect("a client");
    let mut log = client.get_connection().expect("a connection");
    let mut notes = String::new();
    let stay = || {
        let entered = Instant::now();
        while entered.elapsed() < Duration::from_micros(300) {
            std::hint::spin_loop();
        }
    };
    let mut note = |from: u64, to: u64| {
        notes.clear();
        write!(notes, "{who} {from} {to}").expect("memory");
        redis::cmd("RPUSH").arg("hand-offs").arg(&notes).exec(&mut log).expect("a note");
    };
    if mode == "locker" {
        let locker = Locker::connect_blocking(url).expect("a connection");
        for _ in 0..turns {
            let guard = locker.lock("hand-off").timeout(Duration::from_secs(60)).acquire_blocking().unwrap();
            let from = now_nanos();
            stay();
            let to = now_nanos();
            guard.release_blocking().unwrap();
            note(from, to);
        }
        return;
    }
    let pause = if mode == "poll 1 ms" { Duration::from_millis(1) } else { Duration::from_millis(100) };
    let mut connection = client.get_connection().expect("a connection");
    let release = Script::new(RAW_RELEASE);
    for _ in 0..turns {
        while redis::cmd("SET")
            .arg("polled")
            .arg(who)
            .arg("NX")
            .arg("PX")
            .arg(10_000)
            .query::<Option<String>>(&mut connection)
            .unwrap()
            .is_none()
        {
            std::thread::sleep(pause);
        }
        let from = now_nanos();
        stay();
        let to = now_nanos();
        release.key("polled").arg(who).invoke::<i64>(&mut connection).unwrap();
        note(from, to);
        // The other one gets its turn: without a queue the one that has just left would win again and again.
        std::thread::sleep(pause + pause / 2);
    }
}

fn idle_waiters(server: &RedisServer) {
    const WAITERS: usize = 1_000;
    const WATCHED: Duration = Duration::from_secs(10);
    let runtime = runtime();
    let locker = runtime.block_on(Locker::connect(&server.url())).expect("a connection");
    runtime.block_on(async {
        let guard = locker.lock("idle").acquire().await.unwrap();
        let mut waiters = JoinSet::new();
        for _ in 0..WAITERS {
            let request = locker.lock("idle").timeout(Duration::from_secs(300));
            waiters.spawn(async move { request.acquire().await.map(drop) });
        }
        while server.ask::<usize>("ZCARD", &["{lock:idle}:q"]) < WAITERS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let before = commands(server);
        tokio::time::sleep(WATCHED).await;
        let rate = (commands(server) - before) as f64 / WATCHED.as_secs_f64();
        println!("\n{WAITERS} waiters on one held lock: {rate:.0} commands per second");
        waiters.abort_all();
        guard.release().await.unwrap();
    });
}
