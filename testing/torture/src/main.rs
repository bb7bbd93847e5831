//! Real worker processes on few locks, semaphores, read/write locks, limiters, counters, events, latches, barriers
//! and watchdogs while workers, network and server break; then the history is judged.
//!
//! `cargo run -p locker-torture -- --seconds 600`; `--help` lists the rest. `docs/guarantees.md` says what is
//! checked.

mod checks;
mod faults;
mod history;
mod kinds;
mod limits;
mod resource;
mod together;
mod worker;

use clap::{Args, Parser, Subcommand};
use faults::Chaos;
use history::{History, Verdict};
use kinds::Kind;
use locker_harness::{Proxy, RedisServer, eventually};
use locker_runtime::Locker;
use std::{
    collections::BTreeSet,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Tortures what is held on Redis and judges what happened.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    plan: Plan,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// What the other processes do.
    #[command(hide = true)]
    Worker(worker::Work),
}

/// What is done for how long.
#[derive(Clone, Debug, Args)]
struct Plan {
    /// How long faults come, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 5)]
    workers: usize,
    /// Callers in each of them.
    #[arg(long, default_value_t = 6)]
    callers: usize,
    /// What they take.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "lock,lock-all,semaphore,read-write,limiter,counter,event,latch,barrier,watchdog"
    )]
    kinds: Vec<Kind>,
    /// How many of each kind they share.
    #[arg(long, default_value_t = 2)]
    names: usize,
    /// Of the random faults; printed, so that a run can be repeated (its timing cannot).
    #[arg(long)]
    seed: Option<u64>,
    /// Only these faults, as `kill-worker,stop-worker,kill-redis,stop-redis,reset,drop-replies,execute-and-reset,half-close,delay,forget-scripts`.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
}

/// How long nothing goes wrong at first.
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
    // What was acknowledged survives a crash of the server: otherwise nothing is promised.
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
    let calm_until = worker::now();
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

/// After everybody has gone, nothing stays: no hold, no key for ever, no subscription.
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
