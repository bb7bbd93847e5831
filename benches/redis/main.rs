//! Costs of a lock on Redis, beside its alternatives.
//!
//! The rivals are in their default use, with their connections in the application's own tokio runtime: `rslock`, and
//! raw commands (`SET NX PX` and a compare-and-delete script) on a connection of the `redis` crate.
//!
//! `cargo bench --bench redis --all-features` starts its own servers and takes about ten minutes.
//! `LOCKER_BENCH=pairs,blocking,server,strict,hot,commands,hand_off,idle,reconnect,purge,replicas` selects parts:
//!
//! - `pairs`: acquire + release of 1, 16 and 64 tasks, each on a name of its own;
//! - `blocking`: the same of one and four threads without a runtime, each with a name and, of the raw client, a
//!   connection of its own;
//! - `server`: the processor's time that the server needs for a pair;
//! - `strict`: pairs in strict mode beside pairs without it, and the time of the server for both;
//! - `hot`: 16 tasks on one name: grants, fairness, hand-off time;
//! - `commands`: commands per grant of tasks on one name;
//! - `hand_off`: how long a name is free between two processes that want it;
//! - `idle`: commands per second that waiters send;
//! - `reconnect`: the calls of 3,000 waiters after their connection was cut;
//! - `purge`: a release while 50,000 waiters of a killed process are queued;
//! - `replicas`: acquire + release where replicas must have the grant;
//! - `profile`: pairs or admissions and nothing beside them, for ten seconds: not part of the whole;
//!   `benches/profile.py` runs it below `perf`.

#![allow(missing_docs, clippy::cast_precision_loss, reason = "a measurement, not an interface")]

mod commands;
mod failures;
mod hand_off;
mod hot;
mod pairs;
mod replicas;
mod rivals;
#[path = "../support.rs"]
mod support;
#[path = "../tasks.rs"]
mod tasks;
mod waiters;

use locker_harness::RedisServer;

/// The name of a part, and its measurement.
type Part = (&'static str, fn(&RedisServer));

fn main() {
    for argument in std::env::args() {
        match argument.split_once('=') {
            Some(("hand-off", role)) => return hand_off::contender(role),
            Some(("waiters", role)) => return waiters::wait(role),
            _ => {}
        }
    }
    let chosen = std::env::var("LOCKER_BENCH").unwrap_or_default();
    if chosen == "profile" {
        return RedisServer::start().into_iter().for_each(|server| pairs::profile(&server));
    }
    let parts: [Part; 11] = [
        ("pairs", pairs::pairs),
        ("blocking", pairs::blocking),
        ("server", pairs::server_time),
        ("strict", pairs::strict),
        ("hot", hot::hot),
        ("commands", commands::per_grant),
        ("hand_off", hand_off::hand_off),
        ("idle", commands::idle),
        ("reconnect", failures::reconnect),
        ("purge", failures::purge),
        ("replicas", replicas::replicas),
    ];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.split(',').any(|choice| choice == name) {
            let Some(server) = RedisServer::start() else { return };
            part(&server);
        }
    }
}

/// Returns the value that this percentage of the values does not exceed.
fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * percent / 100).copied().unwrap_or(f64::NAN)
}
