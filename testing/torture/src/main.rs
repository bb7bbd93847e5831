//! Real worker processes share a few locks, semaphores, read/write locks, limiters, counters, events, latches, barriers
//! and watchdogs while workers, network and server break. Then the history is judged.
//!
//! `cargo run -p locker-torture -- --seconds 600`; `--help` lists the options. `docs/guarantees.md` lists the checks.

mod checks;
mod faults;
mod history;
mod kinds;
mod limits;
mod record;
mod resource;
mod together;
mod verdict;
mod worker;

use clap::{Args, Parser, Subcommand};
use faults::Chaos;
use history::History;
use kinds::Kind;
use locker_harness::{Proxy, RedisServer, eventually};
use locker_runtime::Locker;
use std::{
    collections::BTreeSet,
    process::ExitCode,
    time::{Duration, Instant},
};
use verdict::Verdict;

/// Tortures locks and other primitives on Redis, and judges the history.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    plan: Plan,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Runs a worker process.
    #[command(hide = true)]
    Worker(worker::Work),
}

/// The options of a run.
#[derive(Clone, Debug, Args)]
struct Plan {
    /// Duration of the faults, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Number of worker processes.
    #[arg(long, default_value_t = 5)]
    workers: usize,
    /// Number of callers per worker.
    #[arg(long, default_value_t = 6)]
    callers: usize,
    /// Kinds of primitives that the callers use.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "lock,lock-all,semaphore,read-write,limiter,counter,event,latch,barrier,watchdog"
    )]
    kinds: Vec<Kind>,
    /// Number of names of each kind.
    #[arg(long, default_value_t = 2)]
    names: usize,
    /// Seed of the random faults. Each run prints its seed; the faults repeat with it, their timing does not.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these faults: kill-worker, stop-worker, kill-redis, stop-redis, reset, drop-replies, execute-and-reset,
    /// half-close, delay, forget-scripts.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
}

/// The time before the first fault.
const CALM: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Worker(work)) => {
            work.run();
            ExitCode::SUCCESS
        }
        None => torture(&arguments.plan),
    }
}

fn torture(plan: &Plan) -> ExitCode {
    // The guarantees hold only if acknowledged writes survive a crash of the server.
    let persistent = ["--appendonly", "yes", "--appendfsync", "always"];
    let (Some(server), Some(resource)) = (RedisServer::with(&persistent), RedisServer::start()) else {
        return ExitCode::SUCCESS;
    };
    let seed = plan.seed.unwrap_or_else(|| fastrand::u64(..));
    let Plan { seconds, workers, callers, names, kinds, .. } = plan;
    println!(
        "seed {seed}, {workers} workers with {callers} callers each on {names} of {kinds:?} for {seconds} s"
    );
    let proxy = Proxy::to(server.port());
    let history = History::default();
    let mut chaos = Chaos::new(plan, seed, server, proxy, &resource, history.clone());
    std::thread::sleep(CALM);
    let calm_until = record::now();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(plan.seconds) {
        chaos.strike();
    }
    let (server, counts) = chaos.end();
    let mut verdict = history.judge(calm_until);
    resource::judge(&resource, &plan.names_of(&[Kind::Lock, Kind::LockAll, Kind::ReadWrite]), &mut verdict);
    leaks(&server, plan, &mut verdict);
    let locker = Locker::connect_blocking(&server.url()).expect("the server");
    history.judge_together(&locker, calm_until, &mut verdict);
    println!("{counts}");
    report(&verdict)
}

impl Plan {
    fn names_of(&self, kinds: &[Kind]) -> Vec<String> {
        let wanted = self.kinds.iter().filter(|kind| kinds.contains(kind));
        let names: BTreeSet<String> =
            wanted.flat_map(|kind| (0..self.names).map(|number| kind.name(number))).collect();
        names.into_iter().collect()
    }
}

/// Checks that no hold, no key without an expiry and no subscription is left after the workers have ended.
fn leaks(server: &RedisServer, plan: &Plan, verdict: &mut Verdict) {
    eventually("the last subscription's end", || {
        server.ask::<Vec<String>>("PUBSUB", &["CHANNELS", "*"]).is_empty().then_some(())
    });
    eventually("the end of the last lease", || {
        let keys: Vec<String> = server.ask("KEYS", &["lock:*"]);
        keys.is_empty().then_some(())
    });
    let locker = Locker::connect_blocking(&server.url()).expect("the server");
    for name in plan.names_of(&[Kind::Lock, Kind::LockAll, Kind::Semaphore, Kind::ReadWrite]) {
        let kind = Kind::of(&name).expect("a name of ours");
        if let Err(error) = kind.ask(&locker, &name, kind.whole()).acquire_blocking() {
            verdict.problems.push(format!("leak: not all of {name} is free: {error}"));
        }
    }
    let keys: Vec<String> = server.ask("KEYS", &["*"]);
    let eternal = keys.iter().filter(|key| server.ask::<i64>("PTTL", &[key]) == -1).cloned();
    verdict.problems.extend(eternal.map(|key| format!("leak: {key} never expires")));
}

fn report(verdict: &Verdict) -> ExitCode {
    println!("{verdict}");
    if verdict.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
