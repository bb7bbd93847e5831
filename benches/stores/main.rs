//! Costs of a lock on PostgreSQL, MySQL, etcd and files, beside what an application would use instead.
//!
//! The rivals are in their default use: session advisory locks of PostgreSQL with a connection per task (a lock keeps
//! its connection), `GET_LOCK` and rows that a transaction locks on MariaDB, the lock service of etcd (`v3lock`) with a
//! lease per task, and `flock` by `std::fs::File::lock`.
//!
//! `cargo bench --bench stores --all-features` starts its own servers, with `fsync` as they have it by default, and
//! takes about ten minutes. `LOCKER_BENCH=postgres,distance,mysql,etcd,files,idle` selects parts:
//!
//! - `postgres`, `mysql`, `etcd`: acquire + release on names of their own, on one name, and on eight names; and what
//!   two bare updates of one row cost on PostgreSQL, the first of them durable;
//! - `distance`: PostgreSQL behind a network with a round trip of 4 ms;
//! - `files`: the same in one directory, beside `flock` and Redis;
//! - `idle`: statements per second, connections and processor time of 1,000 waiters.

#![allow(missing_docs, clippy::cast_precision_loss, reason = "a measurement, not an interface")]

mod idle;
mod rivals;
#[path = "../support.rs"]
mod support;
#[path = "../tasks.rs"]
mod tasks;
mod v3lock;

use locker_harness::{EtcdServer, Fault, MysqlServer, PostgresServer, Proxy, RedisServer};
use rivals::Rival;
use std::time::Duration;
use support::{Subject, compare, subject};
use tasks::{runtime, spread};
use tokio::runtime::Runtime;

/// The default of PostgreSQL, which the tests switch off.
const FSYNC: [&str; 1] = ["fsync=on"];

/// How many tasks there are, and on how many names.
const CROWDS: [(u32, u32); 5] = [(1, 1), (16, 16), (64, 64), (64, 1), (64, 8)];

fn main() {
    let chosen = std::env::var("LOCKER_BENCH").unwrap_or_default();
    let parts: [(&str, fn()); 6] = [
        ("postgres", postgres),
        ("distance", distance),
        ("mysql", mysql),
        ("etcd", etcd),
        ("files", files),
        ("idle", idle::idle),
    ];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.split(',').any(|choice| choice == name) {
            part();
        }
    }
}

fn postgres() {
    let Some(server) = PostgresServer::with(&FSYNC) else { return };
    let runtime = runtime();
    let rivals = [
        ("advisory lock", Rival::advisory(&runtime, &server.url(), 64)),
        ("locker", Rival::locker(&runtime, &server.url())),
        ("locker, durable=false", Rival::locker(&runtime, &format!("{}?durable=false", server.url()))),
    ];
    for crowd in CROWDS {
        crowds("PostgreSQL", &runtime, &rivals, crowd, 2_000);
    }
    server.psql(
        "CREATE TABLE bare (name bigint PRIMARY KEY, changes bigint) WITH (fillfactor = 10);
         INSERT INTO bare SELECT name, 0 FROM generate_series(0, 63) name",
    );
    let [advisory, ..] = rivals;
    let rivals = [advisory, ("two bare updates", Rival::rows(&runtime, &server.url(), 16))];
    for crowd in CROWDS.into_iter().filter(|(tasks, names)| tasks == names && *tasks <= 16) {
        crowds("PostgreSQL", &runtime, &rivals, crowd, 2_000);
    }
}

fn distance() {
    let Some(server) = PostgresServer::with(&FSYNC) else { return };
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::Delay(Duration::from_millis(2)));
    let url = proxy.url().replace("redis://", "postgres://locker@") + "/locker?sslmode=disable";
    let runtime = runtime();
    let rivals =
        [("advisory lock", Rival::advisory(&runtime, &url, 64)), ("locker", Rival::locker(&runtime, &url))];
    for crowd in CROWDS {
        crowds("PostgreSQL, round trip 4 ms", &runtime, &rivals, crowd, 400);
    }
}

fn mysql() {
    let Some(server) = MysqlServer::on_disk() else { return };
    server.sql("CREATE TABLE rows_to_lock (name bigint PRIMARY KEY) ENGINE=InnoDB");
    for name in 0..64 {
        server.sql(&format!("INSERT INTO rows_to_lock VALUES ({name})"));
    }
    let runtime = runtime();
    let rivals = [
        ("GET_LOCK", Rival::get_lock(&runtime, &server.url(), 64)),
        ("SELECT .. FOR UPDATE", Rival::for_update(&runtime, &server.url(), 64)),
        ("locker", Rival::locker(&runtime, &server.url())),
    ];
    for crowd in CROWDS {
        crowds("MariaDB", &runtime, &rivals, crowd, 1_000);
    }
}

fn etcd() {
    let Some(server) = EtcdServer::start() else { return };
    let runtime = runtime();
    let rivals = [
        ("v3lock", Rival::v3lock(&runtime, &format!("http://127.0.0.1:{}", server.port()), 64)),
        ("locker", Rival::locker(&runtime, &server.url())),
    ];
    for crowd in CROWDS {
        crowds("etcd", &runtime, &rivals, crowd, if crowd.1 < crowd.0 { 200 } else { 1_000 });
    }
}

fn files() {
    let Some(server) = RedisServer::start() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let runtime = runtime();
    let rivals = [
        ("flock", Rival::flock(directory.path())),
        ("locker on Redis", Rival::locker(&runtime, &server.url())),
        ("locker on files", Rival::locker(&runtime, &format!("file://{}/locks", directory.path().display()))),
    ];
    for crowd in CROWDS {
        crowds("files", &runtime, &rivals, crowd, 5_000);
    }
}

fn crowds(server: &str, runtime: &Runtime, rivals: &[(&str, Rival)], (tasks, names): (u32, u32), times: u32) {
    let times = if tasks == 1 { times / 4 } else { times };
    let title = format!("{server}: acquire + release, {tasks} tasks, {names} names, time per pair");
    let subjects = rivals.iter().map(|(name, rival)| -> Subject<'_> {
        subject(name, move |times| {
            spread(runtime, tasks, times, |task, times| rival.pairs(task, task % names, times))
        })
    });
    compare(&title, times, 5, subjects.collect());
}
