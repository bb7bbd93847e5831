//! Real worker processes share a few locks, semaphores, read/write locks, limiters, counters, events, latches,
//! barriers, watchdogs and records while workers, network and server break. Then the history is judged.
//!
//! `cargo run -p locker-torture -- --seconds 600`; `--help` lists the options. `docs/contributing/histories.md` has the
//! format and the laws of the history.

mod clock;
mod faults;
mod history;
mod holds;
mod kinds;
mod leaks;
mod nested;
mod once;
mod record;
mod resource;
mod targets;
mod together;
mod trials;
mod worker;

use clap::{Args, Parser, Subcommand};
use faults::Chaos;
use history::History;
use kinds::Kind;
use locker_checker::{
    Verdict,
    format::{self, Header, Line, Losses},
};
use locker_harness::RedisServer;
use locker_runtime::Locker;
use record::Record;
use std::{
    collections::BTreeSet,
    fs::File,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};
use targets::{Store, Target, Topology};
use tempfile::{NamedTempFile, TempPath};
use worker::{LEASE, Work};

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
        default_value = "lock,lock-all,leader,semaphore,read-write,limiter,counter,event,latch,barrier,watchdog,once"
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
    /// The file of the history. Default: a temporary file, which stays if there are problems.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// A waiter has surely noticed by then.
const NOTICED: Duration = Duration::from_millis(200);
/// No call waits for longer than 4 s, and no fault lasts for longer than 2.5 s: none takes more than 12 s.
const RETURNS_WITHIN: Duration = Duration::from_secs(8);
/// Workers have opened a store by then, beside other load.
const OPENS_WITHIN: Duration = Duration::from_secs(60);
/// The most that the clocks of the server and of the callers may differ by.
const CLOCKS_DIFFER: Duration = Duration::from_millis(10);
/// A wait is no part of a circle before others are told of it.
const CIRCLES_LAST: Duration = Duration::from_secs(1);
/// A circle is looked at every five seconds, and a fault may be in the way of several looks.
const STANDS_STILL_WITHIN: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Worker(work)) => {
            work.run(&Record::new(work.worker, None));
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
    let (file, temporary) = plan.file();
    let history = History::new(file);
    history.write(&Line::Header(plan.header(&*target, seed)));
    let mut chaos = Chaos::new(plan, seed, target, &resource, history.clone());
    plan.wait_for_holds(&history);
    std::thread::sleep(Duration::from_secs(plan.calm));
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(plan.seconds) {
        chaos.strike();
    }
    let (target, counts, late) = chaos.end();
    history.problems(late);
    resource::read(
        &resource,
        &plan.names_of(&[Kind::Lock, Kind::LockAll, Kind::Nested, Kind::Leader, Kind::ReadWrite]),
        &history,
    );
    history.problems(target.leaks());
    if plan.kinds.contains(&Kind::Once) {
        history.problems(once::read(&resource));
    }
    let locker = Locker::connect_blocking(&target.direct_url()).expect("the store");
    history.problems(leaks::find(plan, &locker));
    history.problems(target.eternal_keys().iter().map(|key| format!("leak: {key} never expires")));
    together::read(&history, &locker);
    println!("{counts}");
    let verdict = report(&history);
    if verdict.is_sound() {
        return ExitCode::SUCCESS;
    }
    if let Some(temporary) = temporary {
        println!("the history is {}", temporary.keep().expect("the file of the history").display());
    }
    ExitCode::FAILURE
}

/// Prints the verdict, and the first problems.
fn report(history: &History) -> Verdict {
    let verdict = history.judge().expect("a history that the checker reads");
    for problem in verdict.problems.iter().take(20) {
        println!("problem: {problem}");
    }
    println!("{verdict}");
    verdict
}

impl Plan {
    /// Waits until a hold of each kind has come and gone: the workers have opened the store. Without one, the run shows
    /// that nothing was granted.
    fn wait_for_holds(&self, history: &History) {
        let wanted: BTreeSet<_> =
            self.kinds.iter().filter(|kind| kind.whole() > 0).map(|kind| kind.in_history()).collect();
        let started = Instant::now();
        while !history.released().is_superset(&wanted) && started.elapsed() < OPENS_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns what each worker does.
    fn work(&self, url: String, resource: String) -> Work {
        let Self { kinds, names, callers, .. } = self.clone();
        Work { worker: 0, url, resource, kinds, names, callers }
    }

    /// Returns the file of the history, and its path if it is to be removed.
    fn file(&self) -> (File, Option<TempPath>) {
        let Some(path) = &self.history else {
            let (file, path) = NamedTempFile::with_prefix("history").expect("a temporary file").into_parts();
            return (file, Some(path));
        };
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(path);
        (file.unwrap_or_else(|error| panic!("--history {}: {error}", path.display())), None)
    }

    /// Returns what is known about the history of a run.
    fn header(&self, target: &dyn Target, seed: u64) -> Header {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).expect("seconds");
        let made_by: Vec<String> =
            std::iter::once("locker-torture".into()).chain(std::env::args().skip(1)).collect();
        Header {
            version: format::VERSION,
            store: format!("{:?} ({:?})", self.store, self.topology),
            made_by: made_by.join(" "),
            seed: Some(seed),
            lease: nanos(LEASE),
            loses: target.losses(),
            // A store that is broken all the time has no calm time.
            calm: target.has_processes(),
            joins_within: nanos(target.joins_within()),
            notices_within: nanos(NOTICED + target.clock_is_late_by()),
            returns_within: nanos(RETURNS_WITHIN),
            clock_gains: nanos(target.clock_gains()),
            clocks_differ: nanos(CLOCKS_DIFFER),
            circles_last: nanos(CIRCLES_LAST),
            stands_still_within: nanos(STANDS_STILL_WITHIN),
        }
    }

    fn names_of(&self, kinds: &[Kind]) -> Vec<String> {
        let wanted = self.kinds.iter().filter(|kind| kinds.contains(kind));
        let names: BTreeSet<String> = wanted.flat_map(|kind| kind.names(self.names)).collect();
        names.into_iter().collect()
    }
}
