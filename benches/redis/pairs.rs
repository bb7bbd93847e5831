//! Acquire + release of names without contention.

use super::{
    rivals::{RELEASE, Rival, set_if_free, spread, token},
    support::{compare, subject, title},
    tasks::{self, runtime},
};
use locker::{Locker, Quota};
use locker_harness::{RedisServer, in_both_places};
use redis::{Client, IntoConnectionInfo, io::tcp::TcpSettings};
use std::{
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

fn rivals(runtime: &Runtime, server: &RedisServer) -> [(&'static str, Rival); 3] {
    [
        ("raw", Rival::raw(runtime, server)),
        ("rslock", Rival::rslock(server)),
        ("locker", Rival::locker(runtime, server)),
    ]
}

pub(crate) fn pairs(server: &RedisServer) {
    let runtime = runtime();
    let rivals = rivals(&runtime, server);
    in_both_places(server, |place| {
        for tasks in [1, 16, 64] {
            let times = if tasks == 1 { 3_000 } else { 20_000 };
            let title = format!("acquire + release, {tasks} tasks, time per pair{place}");
            let subjects = rivals.iter().map(|(name, rival)| {
                let (name, runtime) = (*name, &runtime);
                subject(name, move |times| {
                    spread(runtime, rival, tasks, times, |task| format!("{name}:{task}"))
                })
            });
            compare(&title, times, 9, subjects.collect());
        }
    });
}

/// Makes this many pairs on a thread.
type Caller = Box<dyn FnMut(u32) + Send>;

pub(crate) fn blocking(server: &RedisServer) {
    let locker = Locker::connect_blocking(&server.url()).expect("a connection");
    let ours = |name: String| -> Caller {
        let locker = locker.clone();
        Box::new(move |times| {
            for _ in 0..times {
                locker.lock(&name).acquire_blocking().unwrap().release_blocking().unwrap();
            }
        })
    };
    let raw = |client: &Client, name: String| -> Caller {
        let mut connection = client.get_connection().unwrap();
        Box::new(move |times| {
            for _ in 0..times {
                let token = token();
                let set: Option<String> = set_if_free(&name, &token).query(&mut connection).unwrap();
                assert!(set.is_some());
                let released = RELEASE.key(&name).arg(&token).invoke::<i64>(&mut connection);
                assert_eq!(released.unwrap(), 1);
            }
        })
    };
    let info = server.url().into_connection_info().expect("an address");
    let no_delay = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let (defaults, no_delay) = (Client::open(server.url()).unwrap(), Client::open(no_delay).unwrap());
    for threads in [1_u32, 4] {
        let of = |caller: &dyn Fn(String) -> Caller| {
            (0..threads).map(|thread| caller(format!("blocking:{thread}"))).collect()
        };
        let subjects = vec![
            subject("sync client with its defaults", on_threads(of(&|name| raw(&defaults, name)))),
            subject("sync client, TCP_NODELAY set", on_threads(of(&|name| raw(&no_delay, name)))),
            subject("locker, blocking", on_threads(of(&ours))),
        ];
        let title = format!("acquire + release, blocking, {threads} threads, time per pair");
        compare(&title, 3_000, 9, subjects);
    }
}

fn on_threads(mut callers: Vec<Caller>) -> impl FnMut(u32) -> Duration {
    move |times| {
        let (started, each) = (Instant::now(), times / u32::try_from(callers.len()).expect("few"));
        thread::scope(|scope| {
            for caller in &mut callers {
                scope.spawn(move || caller(each));
            }
        });
        started.elapsed()
    }
}

/// Strict mode, when the time without grants is over.
pub(crate) fn strict(server: &RedisServer) {
    let runtime = runtime();
    let strict = Locker::builder().url(format!("{}?strict=10s", server.url())).build();
    let strict = runtime.block_on(strict).expect("a connection");
    let over = runtime.block_on(strict.lock("first").timeout(Duration::from_secs(60)).acquire());
    runtime.block_on(over.expect("the end of the quiet time").release()).expect("a release");
    let rivals = [("plain", Rival::locker(&runtime, server)), ("strict", Rival::Locker(strict))];
    for tasks in [1, 16] {
        let times = if tasks == 1 { 3_000 } else { 20_000 };
        let subjects = rivals.iter().map(|(name, rival)| {
            let (name, runtime) = (*name, &runtime);
            subject(name, move |times| spread(runtime, rival, tasks, times, |task| format!("{name}:{task}")))
        });
        let title = format!("acquire + release, {tasks} tasks, strict mode, time per pair");
        compare(&title, times, 9, subjects.collect());
    }
    time_of_the_server(&runtime, server, &rivals);
}

pub(crate) fn server_time(server: &RedisServer) {
    let runtime = runtime();
    time_of_the_server(&runtime, server, &rivals(&runtime, server));
}

/// Pairs, or admissions of a limiter for each task, and nothing else, for a profiler.
pub(crate) fn profile(server: &RedisServer) {
    const FOR: Duration = Duration::from_secs(10);
    let setting = |name| std::env::var(name).unwrap_or_default();
    let (tasks, runtime) = (setting("LOCKER_BENCH_TASKS").parse().unwrap_or(16), runtime());
    let what = setting("LOCKER_BENCH_PROFILE");
    let (pairs, locker) = (Rival::locker(&runtime, server), runtime.block_on(Locker::connect(&server.url())));
    let locker = locker.expect("a server");
    let admissions = |task: u32, times| {
        let plenty = Quota::fixed_window(1_000_000_000, Duration::from_secs(1));
        let limiter = locker.rate_limiter(&task.to_string(), plenty);
        async move {
            for _ in 0..times {
                limiter.acquire().await.expect("plenty");
            }
        }
    };
    let (started, mut calls) = (Instant::now(), 0);
    while started.elapsed() < FOR {
        let times = 20_000 / tasks * tasks;
        match what.as_str() {
            "admission" => tasks::spread(&runtime, tasks, times, admissions),
            _ => spread(&runtime, &pairs, tasks, times, |task| format!("locker:{task}")),
        };
        calls += times;
    }
    title(&format!("{what} of {tasks} tasks, below a profiler"));
    println!("  {calls} calls in {:.3} s", started.elapsed().as_secs_f64());
}

fn time_of_the_server(runtime: &Runtime, server: &RedisServer, rivals: &[(&'static str, Rival)]) {
    title("processor time of the server per pair");
    for (tasks, times) in [(1, 10_000), (16, 60_000), (64, 60_000)] {
        print!("  {tasks:>2} tasks");
        for (name, rival) in rivals {
            let run = |times| spread(runtime, rival, tasks, times, |task| format!("{name}:{task}"));
            run(times / 10);
            let before = processor_seconds(server);
            run(times);
            let used = (processor_seconds(server) - before) * 1e6 / f64::from(times);
            print!("   {name} {used:>6.1} us");
        }
        println!();
    }
}

/// Returns the user and system time of the server's main thread.
fn processor_seconds(server: &RedisServer) -> f64 {
    let statistics: String = server.ask("INFO", &["cpu"]);
    let lines = statistics.lines().filter_map(|line| line.split_once("_main_thread:"));
    let seconds: Vec<f64> = lines.map(|(_, seconds)| seconds.parse().expect("seconds")).collect();
    assert_eq!(seconds.len(), 2, "system and user time of the main thread (Redis 6.2 and later)");
    seconds.iter().sum()
}
