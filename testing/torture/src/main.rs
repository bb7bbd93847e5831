//! Real worker processes share a few locks, semaphores, read/write locks, limiters, counters, events, latches, barriers
//! and watchdogs while workers, network and server break. Then the history is judged.
//!
//! `cargo run -p locker-torture -- --seconds 600`; `--help` lists the options. `docs/contributing/evidence.md` lists the
//! checks.

mod calls;
mod faults;
mod history;
mod kinds;
mod leaks;
mod record;
mod resource;
mod targets;
mod together;
mod trials;
mod worker;

use clap::{Args, Parser, Subcommand};
use faults::Chaos;
use history::{History, Losses};
use kinds::Kind;
use locker_checker::{steps::Calm, verdict::Verdict};
use locker_harness::RedisServer;
use locker_runtime::Locker;
use std::{
    collections::BTreeSet,
    process::ExitCode,
    time::{Duration, Instant},
};
use targets::{Store, Topology};
use worker::Work;

/// Tortures locks and other primitives on a store, and judges the history.
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
    /// Runs a process whose waiters stand in the way of others.
    #[command(hide = true)]
    Crowd(trials::Crowd),
}

/// The options of a run.
#[derive(Clone, Debug, Args)]
struct Plan {
    /// The store of the locks. The resource that they protect is a Redis server of its own.
    #[arg(long, value_enum, default_value_t = Store::Redis)]
    store: Store,
    /// The servers of a store on Redis.
    #[arg(long, value_enum, default_value_t = Topology::Single)]
    topology: Topology,
    /// Duration of the faults, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Time before the first fault, in seconds. In it the order of service is judged.
    #[arg(long, default_value_t = 4)]
    calm: u64,
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
    /// Only these faults. A wrong name prints those of the store.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Worker(work)) => {
            work.run();
            ExitCode::SUCCESS
        }
        Some(Role::Crowd(crowd)) => {
            crowd.run();
            ExitCode::SUCCESS
        }
        None => torture(&arguments.plan),
    }
}

fn torture(plan: &Plan) -> ExitCode {
    let (Some(target), Some(resource)) = (plan.store.start(plan.topology), RedisServer::start()) else {
        return ExitCode::SUCCESS;
    };
    let mut plan = plan.clone();
    if target.losses() == Losses::Writes {
        plan.kinds.retain(|kind| kind.whole() > 0);
    }
    let plan = &plan;
    let seed = plan.seed.unwrap_or_else(|| fastrand::u64(..));
    let Plan { store, topology, seconds, workers, callers, names, kinds, .. } = plan;
    println!(
        "{store:?} ({topology:?}), seed {seed}, {workers} workers with {callers} callers each on {names} of {kinds:?} for {seconds} s"
    );
    let history = History::default();
    // A store that is broken all the time has no calm time.
    let has_calm = target.has_processes();
    let mut chaos = Chaos::new(plan, seed, target, &resource, history.clone());
    std::thread::sleep(Duration::from_secs(plan.calm));
    let calm_until = if has_calm { record::now() } else { 0 };
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(plan.seconds) {
        chaos.strike();
    }
    let (target, counts, late) = chaos.end();
    let mut verdict = history.judge(calm_until, target.joins_within(), target.losses(), target.clock_gains());
    resource::judge(&resource, &plan.names_of(&[Kind::Lock, Kind::LockAll, Kind::ReadWrite]), &mut verdict);
    verdict.problems.extend(late);
    verdict.problems.extend(target.leaks());
    let locker = Locker::connect_blocking(&target.direct_url()).expect("the store");
    verdict.problems.extend(leaks::find(plan, &locker));
    verdict.problems.extend(target.eternal_keys().iter().map(|key| format!("leak: {key} never expires")));
    let clearly = Duration::from_millis(200) + target.clock_is_late_by();
    let calm = Calm { until: calm_until, clearly: u64::try_from(clearly.as_nanos()).expect("seconds") };
    history.judge_together(&locker, calm, &mut verdict);
    println!("{counts}");
    report(&verdict)
}

impl Plan {
    /// Returns what each worker does.
    fn work(&self, url: String, resource: String) -> Work {
        Work { url, resource, kinds: self.kinds.clone(), names: self.names, callers: self.callers }
    }

    fn names_of(&self, kinds: &[Kind]) -> Vec<String> {
        let wanted = self.kinds.iter().filter(|kind| kinds.contains(kind));
        let names: BTreeSet<String> =
            wanted.flat_map(|kind| (0..self.names).map(|number| kind.name(number))).collect();
        names.into_iter().collect()
    }
}

fn report(verdict: &Verdict) -> ExitCode {
    println!("{verdict}");
    if verdict.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
