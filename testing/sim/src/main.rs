//! A simulated fleet: processes that lock on a store that loses requests, answers and messages, with clocks that drift,
//! stops and kills, in virtual time. All that happens follows from a seed.
//!
//! `cargo run -p locker-sim -- --seed 7`; `--help` lists the options, `docs/contributing/simulation.md` has more.

mod callers;
mod fleet;
mod plan;
mod shrink;
mod simulation;

use clap::Parser;
use plan::Plan;
use simulation::run;
use std::{
    ops::Range,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::Mutex,
    thread,
};

/// How many seeds one process runs: what a simulated process keeps in statics stays in memory.
const PER_PROCESS: u64 = 250;

/// Runs fleets of simulated processes that lock, in virtual time, and judges what their callers saw. Exits with 1 if a
/// seed fails.
#[derive(Debug, Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds are run.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Writes the history of the last seed to this file, as JSON lines that `locker-checker` reads.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Prints the plan of each seed.
    #[arg(long)]
    plan: bool,
    /// Runs each seed once. Otherwise it runs twice, and both runs must be the same in all that happens.
    #[arg(long)]
    once: bool,
    /// Looks for no smaller plan that fails.
    #[arg(long)]
    no_shrink: bool,
}

/// What some seeds gave.
#[derive(Clone, Copy, Default)]
struct Totals {
    failed: u64,
    holds: u64,
    lost: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = arguments.seed..arguments.seed.saturating_add(arguments.seeds);
    let totals =
        if arguments.seeds > PER_PROCESS { in_processes(seeds, &arguments) } else { here(seeds, &arguments) };
    let Totals { failed, holds, lost } = totals;
    println!("{} seeds, {holds} holds, {lost} of them lost, {failed} failed", arguments.seeds);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds in processes of their own, one per processor at a time.
fn in_processes(seeds: Range<u64>, arguments: &Arguments) -> Totals {
    let (next, totals) = (Mutex::new(seeds.start), Mutex::new(Totals::default()));
    let take = || {
        let mut next = next.lock().expect("no panic");
        let part = *next..seeds.end.min(*next + PER_PROCESS);
        *next = part.end;
        (!part.is_empty()).then_some(part)
    };
    let work = || {
        while let Some(part) = take() {
            let found = in_process(part, arguments);
            let mut totals = totals.lock().expect("no panic");
            totals.failed += found.failed;
            totals.holds += found.holds;
            totals.lost += found.lost;
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    totals.into_inner().expect("no panic")
}

/// Runs seeds in a process of their own, and prints what it says but for its last line, which has the totals.
fn in_process(seeds: Range<u64>, arguments: &Arguments) -> Totals {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    command.args(["--seed", &seeds.start.to_string(), "--seeds", &(seeds.end - seeds.start).to_string()]);
    command.args(arguments.once.then_some("--once")).args(arguments.plan.then_some("--plan"));
    command.args(arguments.no_shrink.then_some("--no-shrink"));
    if let Some(file) = &arguments.history {
        command.arg("--history").arg(file);
    }
    let output = command.stderr(std::process::Stdio::inherit()).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    let (before, totals) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
    if !before.is_empty() {
        println!("{before}");
    }
    let numbers: Vec<u64> = totals.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [_, holds, lost, failed] = numbers[..] else {
        println!("seeds {seeds:?}: the process has ended: {}", output.status);
        return Totals { failed: 1, ..Totals::default() };
    };
    Totals { failed, holds, lost }
}

fn here(seeds: Range<u64>, arguments: &Arguments) -> Totals {
    let mut totals = Totals::default();
    for seed in seeds {
        totals.failed += u64::from(!is_sound(seed, arguments, &mut totals));
    }
    totals
}

/// Runs a seed. If it is the first that fails, prints the smallest plan that fails in the same way, and its history.
fn is_sound(seed: u64, arguments: &Arguments, totals: &mut Totals) -> bool {
    let plan = Plan::of(seed);
    if arguments.plan {
        println!("{plan}");
    }
    let first = run(&plan);
    if let Some(file) = &arguments.history {
        std::fs::write(file, first.text()).expect("a file that can be written");
    }
    totals.holds += first.holds;
    totals.lost += first.lost;
    if arguments.seeds == 1 {
        let [calls, seconds] = [first.history.len() as u64, first.time / 1_000_000];
        println!("seed {seed}: {seconds} s, {} polls, {calls} lines of history", first.trace.1);
    }
    if !arguments.once && run(&plan).trace != first.trace {
        println!("seed {seed}: two runs differ");
        return false;
    }
    let Some(problem) = first.problems.first() else { return true };
    println!("seed {seed} fails: {problem}");
    if totals.failed == 0 && !arguments.no_shrink {
        let (plan, run) = shrink::shrink(plan, first);
        println!("the smallest plan found that fails:\n{plan}\nits history:\n{}", run.text());
        run.problems.iter().for_each(|problem| println!("{problem}"));
    }
    false
}
