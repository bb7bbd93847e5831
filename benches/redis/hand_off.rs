//! Two processes want one name.

use super::{
    percentile,
    rivals::{RELEASE, set_if_free},
    support::title,
};
use locker::Locker;
use locker_harness::RedisServer;
use redis::Client;
use std::{
    fmt::Write,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Measures how long the name is free between two holders.
pub(crate) fn hand_off(server: &RedisServer) {
    title("hand-off between two processes on one key, time during which it is free");
    for mode in ["locker", "poll 1 ms", "poll 100 ms"] {
        let turns = if mode == "poll 100 ms" { 60 } else { 1_500 };
        let _: i64 = server.ask("DEL", &["hand-offs"]);
        let start = |owner: &str| -> Child {
            Command::new(std::env::current_exe().expect("this program"))
                .arg(format!("hand-off={mode};{owner};{turns};{}", server.url()))
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
        let gaps: Vec<f64> = sorted.windows(2).filter_map(gap).collect();
        let (count, p50) = (gaps.len(), percentile(gaps.clone(), 50));
        let p99 = percentile(gaps, 99);
        println!("  {mode:<12} p50 {p50:>9.0} us   p99 {p99:>9.0} us   ({count} hand-offs)");
    }
}

fn now_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Runs one of the two processes, which notes the times of its entries and releases.
pub(crate) fn contender(role: &str) {
    let mut words = role.splitn(4, ';');
    let mut word = || words.next().expect("four words");
    let (mode, owner, turns, url) = (word(), word(), word().parse::<usize>().expect("a number"), word());
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
        write!(notes, "{owner} {from} {to}").expect("memory");
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
    for _ in 0..turns {
        while set_if_free("polled", owner).query::<Option<String>>(&mut connection).unwrap().is_none() {
            std::thread::sleep(pause);
        }
        let from = now_nanos();
        stay();
        let to = now_nanos();
        RELEASE.key("polled").arg(owner).invoke::<i64>(&mut connection).unwrap();
        note(from, to);
        // Lets the other process win: without a queue, the last holder would win again and again.
        std::thread::sleep(pause + pause / 2);
    }
}
