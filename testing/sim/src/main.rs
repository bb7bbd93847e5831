//! A simulated fleet: processes that lock on a store that loses requests, answers and messages, with clocks that drift,
//! stops and kills, in virtual time. All that happens follows from a seed.
//!
//! `cargo run -p locker-sim -- --seed 7`; `--help` lists the options.

mod callers;
mod fleet;
mod plan;
mod shrink;
mod simulation;

use clap::Parser;
use plan::Plan;
use simulation::run;
use std::{path::PathBuf, process::ExitCode};

/// Runs a fleet of simulated processes that lock, in virtual time, and judges what their callers saw.
#[derive(Debug, Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds are run, one after the other.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Writes the history of the last run to this file, as JSON lines that `locker-checker` reads.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Prints the plan of each run.
    #[arg(long)]
    plan: bool,
    /// Runs each seed once. Otherwise it runs twice, and both runs must be the same in all that happens.
    #[arg(long)]
    once: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (mut failed, mut grants) = (0, [0; 2]);
    for seed in arguments.seed..arguments.seed + arguments.seeds {
        failed += u64::from(!is_sound(seed, &arguments, failed == 0, &mut grants));
    }
    println!("{} seeds, {} holds, {} of them lost: {failed} failed", arguments.seeds, grants[0], grants[1]);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a seed. If it is the first that fails, prints the smallest plan that fails in the same way, and its history.
fn is_sound(seed: u64, arguments: &Arguments, is_first: bool, grants: &mut [u64; 2]) -> bool {
    let plan = Plan::of(seed);
    if arguments.plan {
        println!("{plan}");
    }
    let first = run(&plan);
    if let Some(file) = &arguments.history {
        std::fs::write(file, first.text()).expect("a file that can be written");
    }
    grants.iter_mut().zip(first.grants).for_each(|(all, more)| *all += more);
    if arguments.seeds == 1 {
        let [calls, seconds] = [first.history.len() as u64, first.time / 1_000_000];
        println!("seed {seed}: {seconds} s, {} polls, {calls} lines of history", first.trace.1);
    }
    if !arguments.once && run(&plan).trace != first.trace {
        println!("seed {seed}: two runs differ");
        return false;
    }
    if first.problems.is_empty() {
        return true;
    }
    println!("seed {seed} fails: {}", first.problems[0]);
    if !is_first {
        return false;
    }
    let (plan, run) = shrink::shrink(plan, first);
    println!("the smallest plan found that fails:\n{plan}\nits history:\n{}", run.text());
    for problem in &run.problems {
        println!("{problem}");
    }
    false
}
