//! Costs and accuracy of rate limiters and semaphores, beside governor, tokio and a raw script.
//!
//! `cargo bench --bench limits --all-features`. `LOCKER_BENCH=limiters,semaphore,redis,refused,accuracy,windows`
//! selects parts.

#![allow(missing_docs, reason = "a measurement, not an interface")]

mod support;

use governor::{DefaultKeyedRateLimiter, RateLimiter as Governor};
use locker::{Locker, Quota, RateLimiter};
use locker_harness::{RedisServer, in_both_places};
use redis::{AsyncConnectionConfig, Client, Script, aio::MultiplexedConnection};
use std::{
    cell::Cell,
    future::Future,
    hint::black_box,
    num::NonZeroU32,
    pin::pin,
    process::{Child, Command, Stdio},
    task::{Context, Poll, Waker},
    time::{Duration, Instant, SystemTime},
};
use support::{compare, subject, timed, title};
use tokio::{runtime::Runtime, sync::Semaphore, task::JoinSet};

const KEYS: usize = 1_000;
const ALL: &str = "limiters,semaphore,redis,refused,accuracy,windows";

fn main() {
    if let Some(url) =
        std::env::args().find_map(|argument| argument.strip_prefix("caller=").map(str::to_owned))
    {
        return caller(&url);
    }
    let chosen = std::env::var("LOCKER_BENCH").unwrap_or_else(|_| ALL.to_owned());
    let parts = [limiters as fn(), semaphore, on_redis, refused_on_redis, accuracy, windows];
    for (name, part) in ALL.split(',').zip(parts) {
        if chosen.split(',').any(|choice| choice == name) {
            part();
        }
    }
}

/// Returns the value of a future that the embedded store completes at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the call had to wait"),
    }
}

/// Returns the next key, in a cycle.
fn next(at: &Cell<usize>) -> usize {
    at.set((at.get() + 1) % KEYS);
    at.get()
}

fn limiters() {
    const PLENTY: u64 = 1_000_000_000;
    let (keys, at) = (&(0..KEYS).map(|key| format!("client {key}")).collect::<Vec<_>>(), &Cell::new(0));
    let quota = governor::Quota::per_second(NonZeroU32::new(1_000_000_000).expect("more than none"));
    let keyed: DefaultKeyedRateLimiter<String> = Governor::keyed(quota);
    let locker = Locker::memory();
    let of = |quota| of_locker(&locker, keys, quota);
    let second = Duration::from_secs(1);
    let (gcra, bucket) = (of(Quota::gcra(PLENTY, second)), of(Quota::token_bucket(PLENTY, second)));
    compare(
        "one admission, 1,000 keys in turn",
        200_000,
        15,
        vec![
            subject("governor, keyed", timed(|| keyed.check_key(&keys[next(at)]).expect("plenty"))),
            subject(
                "gcra",
                timed(|| {
                    black_box(now(gcra[next(at)].acquire()).expect("plenty"));
                }),
            ),
            subject(
                "token bucket",
                timed(|| {
                    black_box(now(bucket[next(at)].acquire()).expect("plenty"));
                }),
            ),
            subject(
                "gcra, by name",
                timed(|| {
                    let limiter = locker.rate_limiter(&keys[next(at)], Quota::gcra(PLENTY, second));
                    black_box(now(limiter.acquire()).expect("plenty"));
                }),
            ),
        ],
    );

    let keyed: DefaultKeyedRateLimiter<String> = Governor::keyed(governor::Quota::per_hour(NonZeroU32::MIN));
    let hour = Duration::from_secs(3600);
    let [gcra, bucket, window] =
        [Quota::gcra(1, hour), Quota::token_bucket(1, hour), Quota::fixed_window(1, hour)].map(|quota| {
            let locker = Locker::memory();
            for key in keys {
                drop(keyed.check_key(key));
                now(locker.rate_limiter(key, quota).acquire()).expect("the first one");
            }
            (of_locker(&locker, keys, quota), locker, quota)
        });
    let by_handle = |(limiters, _, _): &(Vec<RateLimiter>, Locker, Quota)| {
        let limiters = limiters.clone();
        timed(move || assert_eq!(now(limiters[next(at)].try_acquire()).expect("a reply"), None))
    };
    let by_name = |(_, locker, quota): &(Vec<RateLimiter>, Locker, Quota)| {
        let (locker, quota) = (locker.clone(), *quota);
        timed(move || {
            let limiter = locker.rate_limiter(&keys[next(at)], quota);
            assert_eq!(now(limiter.try_acquire()).expect("a reply"), None);
        })
    };
    compare(
        "one refusal, 1,000 keys in turn",
        200_000,
        15,
        vec![
            subject("governor, keyed", timed(|| assert!(keyed.check_key(&keys[next(at)]).is_err()))),
            subject("gcra", by_handle(&gcra)),
            subject("token bucket", by_handle(&bucket)),
            subject("gcra, by name", by_name(&gcra)),
            subject("token bucket, by name", by_name(&bucket)),
            subject("fixed window, by name", by_name(&window)),
        ],
    );
}

fn of_locker(locker: &Locker, keys: &[String], quota: Quota) -> Vec<RateLimiter> {
    keys.iter().map(|key| locker.rate_limiter(key, quota)).collect()
}

fn semaphore() {
    let (locker, tokio) = (Locker::memory(), Semaphore::new(10));
    let by_name = || now(locker.semaphore("pool", 10).acquire()).expect("free");
    compare(
        "one permit of ten, taken and given back",
        100_000,
        15,
        vec![
            subject(
                "tokio::sync::Semaphore (no names, leases or fences)",
                timed(|| drop(now(tokio.acquire()))),
            ),
            subject("lock", timed(|| drop(now(locker.lock("one").acquire())))),
            subject("semaphore", timed(|| drop(by_name()))),
        ],
    );
}

const RAW: &str = "local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return count <= tonumber(ARGV[2]) and 1 or 0";

fn on_redis() {
    const APART: &str = "raw INCR + PEXPIRE script, connection on its own thread";
    const WITHIN: &str = "raw, connection in the same runtime";
    let Some(server) = RedisServer::start() else { return };
    let runtime = runtime();
    // As the locker's connection: on a thread of its own, so that a busy executor starves no renewal.
    let apart = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let apart = apart.expect("a thread");
    let connection_apart = apart.block_on(raw_connection(&server));
    let within = runtime.block_on(raw_connection(&server));
    let locker = runtime.block_on(Locker::connect(&server.url())).expect("a server");
    let script = Script::new(RAW);
    let second = Duration::from_secs(1);
    let plenty = 1_000_000_000;
    let raw = |connection: &MultiplexedConnection| {
        let (mut connection, script, runtime) = (connection.clone(), script.clone(), &runtime);
        move |times: u32| {
            let started = Instant::now();
            runtime.block_on(async {
                for _ in 0..times {
                    let call =
                        script.key("raw").arg(1_000).arg(plenty).invoke_async::<i64>(&mut connection).await;
                    assert_eq!(call.expect("a reply"), 1);
                }
            });
            started.elapsed()
        }
    };
    let of = |quota| {
        let limiter = locker.rate_limiter("limited", quota);
        let runtime = &runtime;
        move |times: u32| {
            let started = Instant::now();
            runtime.block_on(async {
                for _ in 0..times {
                    limiter.acquire().await.expect("plenty");
                }
            });
            started.elapsed()
        }
    };
    let pipelined_raw = |connection: &MultiplexedConnection, tasks| {
        let (script, connection, runtime) = (script.clone(), connection.clone(), &runtime);
        move |times: u32| {
            let (script, connection) = (script.clone(), connection.clone());
            together(runtime, tasks, times, move || {
                let (script, mut connection) = (script.clone(), connection.clone());
                async move {
                    let call =
                        script.key("raw").arg(1_000).arg(plenty).invoke_async::<i64>(&mut connection).await;
                    assert_eq!(call.expect("a reply"), 1);
                }
            })
        }
    };
    let limiter = locker.rate_limiter("limited", Quota::fixed_window(plenty, second));
    let pipelined = |tasks| {
        let (limiter, runtime) = (limiter.clone(), &runtime);
        move |times: u32| {
            let limiter = limiter.clone();
            together(runtime, tasks, times, move || {
                let limiter = limiter.clone();
                async move {
                    limiter.acquire().await.expect("plenty");
                }
            })
        }
    };
    in_both_places(&server, |place| {
        compare(
            &format!("one admission on redis, one caller{place}"),
            2_000,
            15,
            vec![
                subject(APART, raw(&connection_apart)),
                subject(WITHIN, raw(&within)),
                subject("fixed window", of(Quota::fixed_window(plenty, second))),
                subject("gcra", of(Quota::gcra(plenty, second))),
            ],
        );
        for tasks in [16, 64] {
            compare(
                &format!("one admission on redis, {tasks} callers at once{place}"),
                20_000,
                9,
                vec![
                    subject(APART, pipelined_raw(&connection_apart, tasks)),
                    subject(WITHIN, pipelined_raw(&within, tasks)),
                    subject("fixed window", pipelined(tasks)),
                ],
            );
        }
    });
}

/// Refusals by a used-up limit, beside a raw script with its connection in the runtime of its callers.
fn refused_on_redis() {
    let Some(server) = RedisServer::start() else { return };
    let runtime = &runtime();
    let connection = runtime.block_on(raw_connection(&server));
    let locker = runtime.block_on(Locker::connect(&server.url())).expect("a server");
    let hour = Duration::from_secs(3600);
    let limiter = |name, quota| {
        let limiter = locker.rate_limiter(name, quota);
        limiter.acquire_blocking().expect("the first one");
        limiter
    };
    let window = limiter("window", Quota::fixed_window(1, hour));
    let gcra = limiter("gcra", Quota::gcra(1, hour));
    let script = Script::new(RAW);
    let raw = |tasks| {
        let (script, connection) = (script.clone(), connection.clone());
        move |times: u32| {
            let (script, connection) = (script.clone(), connection.clone());
            together(runtime, tasks, times, move || {
                let (script, mut connection) = (script.clone(), connection.clone());
                async move {
                    let call = script.key("raw").arg(1_000).arg(0).invoke_async::<i64>(&mut connection).await;
                    assert_eq!(call.expect("a reply"), 0);
                }
            })
        }
    };
    let refused = |limiter: &RateLimiter, tasks| {
        let limiter = limiter.clone();
        move |times: u32| {
            let limiter = limiter.clone();
            together(runtime, tasks, times, move || {
                let limiter = limiter.clone();
                async move { assert_eq!(limiter.try_acquire().await.expect("a reply"), None) }
            })
        }
    };
    let asking = |limiter: &RateLimiter| limiter.clone().cache_refusals(false);
    for (tasks, times) in [(1, 2_000), (16, 10_000), (64, 20_000)] {
        compare(
            &format!("one refusal on redis, {tasks} tasks"),
            times,
            15,
            vec![
                subject("raw, connection in the same runtime", raw(tasks)),
                subject("fixed window", refused(&window, tasks)),
                subject("fixed window, cache_refusals(false)", refused(&asking(&window), tasks)),
                subject("gcra, cache_refusals(false)", refused(&asking(&gcra), tasks)),
            ],
        );
    }
}

fn together<F: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    tasks: u32,
    times: u32,
    work: impl Fn() -> F + Clone + Send + 'static,
) -> Duration {
    let started = Instant::now();
    runtime.block_on(async {
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let work = work.clone();
            running.spawn(async move {
                for _ in 0..times / tasks {
                    work().await;
                }
            });
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("no panic");
        }
    });
    started.elapsed()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn raw_connection(server: &RedisServer) -> MultiplexedConnection {
    let info = redis::IntoConnectionInfo::into_connection_info(server.url()).expect("an address");
    let info = info.set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
    let client = Client::open(info).expect("a client");
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(1)));
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

const PROCESSES: usize = 8;
const NOMINAL: u64 = 100;
const MEASURED: Duration = Duration::from_secs(10);

/// Acquires as fast as the limiter admits, for a while, and prints the times of its admissions.
fn caller(url: &str) {
    let locker = Locker::connect_blocking(url).expect("the server");
    let quota = match std::env::var("LOCKER_BENCH_QUOTA").as_deref() {
        Ok("window") => Quota::fixed_window(10, Duration::from_millis(100)),
        Ok("bucket") => Quota::token_bucket(10, Duration::from_millis(100)),
        _ => Quota::gcra(NOMINAL, Duration::from_secs(1)).burst(1),
    };
    let limiter = locker.rate_limiter("accuracy", quota).timeout(Duration::from_secs(5));
    let started = Instant::now();
    let mut admissions = Vec::new();
    while started.elapsed() < MEASURED + Duration::from_secs(2) {
        limiter.acquire_blocking().expect("an admission within 5 s");
        admissions.push(SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_micros().to_string());
    }
    println!("{}", admissions.join("\n"));
}

/// Returns the times of the admissions of eight processes together, in microseconds and in order.
fn admissions(url: &str, quota: &str) -> Vec<u64> {
    let program = std::env::current_exe().expect("a program");
    let start = |_| {
        let mut command = Command::new(&program);
        command.arg(format!("caller={url}")).env("LOCKER_BENCH_QUOTA", quota).stdout(Stdio::piped());
        command.spawn().expect("another process")
    };
    let callers: Vec<Child> = (0..PROCESSES).map(start).collect();
    let mut admissions = Vec::new();
    for caller in callers {
        let output = caller.wait_with_output().expect("its end");
        assert!(output.status.success(), "a caller failed");
        admissions.extend(
            String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.parse::<u64>().ok()),
        );
    }
    admissions.sort_unstable();
    admissions
}

/// Returns the admissions in the middle, when all processes take part.
fn middle(admissions: &[u64]) -> &[u64] {
    let start = admissions[0] + 1_000_000;
    let end = start + u64::try_from(MEASURED.as_micros()).expect("seconds");
    let at = |time| admissions.partition_point(|admission| *admission < time);
    &admissions[at(start)..at(end)]
}

fn accuracy() {
    let Some(server) = RedisServer::start() else { return };
    title(&format!("{PROCESSES} processes, nominal {NOMINAL}/s, {MEASURED:?} on redis"));
    for quota in ["gcra", "bucket", "window"] {
        let admissions = admissions(&server.url(), quota);
        let rate = f64::from(u32::try_from(middle(&admissions).len()).expect("few")) / MEASURED.as_secs_f64();
        println!("  {quota:<44} {rate:>10.1} /s   {:+.1} %", rate - 100.0);
    }
}

/// Prints the most admissions in any window of one interval, less 5 ms for callers that wake up late.
fn windows() {
    let Some(server) = RedisServer::start() else { return };
    title(&format!("most admissions in any 100 ms, size 10 per 100 ms, {PROCESSES} processes"));
    for quota in ["window", "bucket"] {
        let admissions = admissions(&server.url(), quota);
        let within =
            |from: &u64| admissions.iter().filter(|turn| (*from..from + 95_000).contains(turn)).count();
        println!("  {quota:<44} {:>10}   allowed 20", admissions.iter().map(within).max().unwrap_or(0));
    }
}
