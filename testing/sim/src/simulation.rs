//! One run of a plan, and the verdict on it.

use crate::{
    callers::{Place, Record},
    fleet::{Clock, Fleet},
    plan::{Break, PATIENT, Plan},
};
use futures_util::FutureExt;
use locker_cas::fake::{self, World};
use locker_checker::format::{End, Fault, Header, Line, Losses, Outcome, VERSION};
use locker_core::{process::world::Inhabitant, store::opening::Opening};
use locker_runtime::Locker;
use std::{
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

/// When a simulation ends at the latest, in microseconds. All callers have ended long before, if each wait ends.
const END: u64 = 1_200_000_000;

/// What a run was.
pub(crate) struct Run {
    /// The same for two runs that were the same in all that happened.
    pub(crate) trace: (u64, u64),
    pub(crate) history: Vec<Line>,
    /// What went wrong.
    pub(crate) problems: Vec<String>,
    /// The number of holds that were granted, and of those that were lost.
    pub(crate) grants: [u64; 2],
    /// The true time that passed, in microseconds.
    pub(crate) time: u64,
}

impl Run {
    /// Returns the history as JSON lines.
    pub(crate) fn text(&self) -> String {
        let line = |line: &Line| serde_json::to_string(line).expect("a line has no maps") + "\n";
        self.history.iter().map(line).collect()
    }
}

/// Runs a plan.
pub(crate) fn run(plan: &Plan) -> Run {
    let fleet = Fleet::new(plan.seed);
    let (_, network) = fleet.add(Clock { ahead: 0, faster: 0 });
    let (world, record) = (Arc::new(World::of(network)), Record::default());
    record.add(Line::Header(header(plan)));
    let places = Arc::new(OnceLock::new());
    let made: Vec<Place> = plan
        .processes
        .iter()
        .map(|process| place(plan, process.clock, &fleet, &world, &record, &places))
        .collect();
    for (place, process) in made.iter().zip(&plan.processes) {
        for (caller, steps) in process.callers.iter().enumerate() {
            let (place, steps) = (place.clone(), steps.clone());
            place.callers.fetch_add(1, Ordering::Relaxed);
            let inhabitant = place.inhabitant.clone();
            inhabitant.spawn(async move {
                place.carry_out(caller, &steps).await;
                place.callers.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
    // It is set once.
    let _ = places.set(made.clone());
    break_things(plan, &fleet, &made, &record);
    let is_done = |place: &Place| fleet.is_killed(place.number) || place.callers.load(Ordering::Relaxed) == 0;
    fleet.run(END, || made.iter().all(is_done));
    record.add(Line::End(End { at: fleet.now() * 1_000 }));
    let (time, trace) = (fleet.now(), fleet.digest());
    fleet.abandon();
    // Their drops are those of another process.
    std::mem::forget((made, places));
    let history = record.lines();
    let mut run = Run { trace, history, problems: Vec::new(), grants: [0; 2], time };
    judge(&mut run);
    run
}

fn header(plan: &Plan) -> Header {
    let second = 1_000_000_000;
    let stops: u64 = plan.breaks.iter().filter_map(|broken| broken.stopped_for).sum();
    Header {
        version: VERSION,
        store: format!("simulated, {}", if plan.ticked { "ticked clock" } else { "served clock" }),
        made_by: format!("locker-sim --seed {}", plan.seed),
        seed: Some(plan.seed),
        lease: 5 * second,
        loses: Losses::Nothing,
        calm: plan.faults == 0,
        joins_within: second,
        notices_within: second,
        returns_within: 15 * second + stops * 1_000_000,
        clock_gains: second + if plan.ticked { stops * 1_000_000 } else { 0 },
        clocks_differ: second,
    }
}

fn place(
    plan: &Plan,
    clock: Clock,
    fleet: &Fleet,
    world: &Arc<World>,
    record: &Record,
    places: &Arc<OnceLock<Vec<Place>>>,
) -> Place {
    let (number, inhabitant) = fleet.add(clock);
    let clock = if plan.ticked { "ticked" } else { "served" };
    let parameters = format!("clock={clock}&delay={}ms&faults={}", plan.delay, plan.faults);
    let locker = of(&inhabitant, || {
        let store =
            fake::open_in(Arc::clone(world), &parameters, &Opening::default()).expect("right parameters");
        let built =
            Locker::builder().store(store).command_timeout(Duration::from_secs(1)).build().now_or_never();
        built.expect("an open store is not waited for").expect("right settings")
    });
    Place {
        fleet: fleet.clone(),
        number,
        locker,
        inhabitant,
        record: record.clone(),
        callers: Arc::default(),
        places: Arc::clone(places),
    }
}

/// Does something as a process.
fn of<T>(process: &Inhabitant, make: impl FnOnce() -> T) -> T {
    let _entered = process.enter();
    make()
}

/// Runs until everything has broken that is to break.
fn break_things(plan: &Plan, fleet: &Fleet, places: &[Place], record: &Record) {
    let mut events: Vec<(u64, usize, Option<bool>)> = Vec::new();
    for Break { at, process, stopped_for } in &plan.breaks {
        if *process >= places.len() {
            continue;
        }
        match stopped_for {
            None => events.push((*at, *process, None)),
            Some(time) => events.extend([(*at, *process, Some(true)), (at + time, *process, Some(false))]),
        }
    }
    events.sort_by_key(|(at, ..)| *at);
    for (at, process, stops) in events {
        fleet.run(at * 1_000, || false);
        let number = places[process].number;
        if fleet.is_killed(number) {
            continue;
        }
        let fault = match stops {
            None => "kill",
            Some(true) => "stop",
            Some(false) => "continue",
        };
        let fault = Fault { at: fleet.now() * 1_000, fault: fault.into(), process: Some(number as u64) };
        record.add(Line::Fault(fault));
        match stops {
            Some(stopped) => fleet.set_stopped(number, stopped),
            None => fleet.kill(number),
        }
    }
}

/// Adds what the checker finds, and the patient callers that were never served.
fn judge(run: &mut Run) {
    let verdict = match locker_checker::judge(run.text().as_bytes()) {
        Ok(verdict) => verdict,
        Err(unreadable) => return run.problems.push(unreadable.to_string()),
    };
    run.grants = [verdict.grants.values().sum::<usize>() as u64, verdict.lost as u64];
    // A short run may have asked for nothing.
    let asked = |problem: &String| problem != "no caller was granted anything";
    run.problems.extend(verdict.problems.iter().map(ToString::to_string).filter(asked));
    for (number, line) in run.history.iter().enumerate() {
        if let Line::Operation(call) = line
            && call.outcome == Outcome::TimedOut
            && call.timeout.is_some_and(|timeout| timeout >= PATIENT * 1_000_000)
        {
            run.problems.push(format!("line {}: not served within {PATIENT} ms: {call:?}", number + 1));
        }
    }
}
