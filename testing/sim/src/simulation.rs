//! One run of a plan, and the verdict on it.

use crate::{
    callers::{Place, Record},
    fleet::{Clock, Fleet},
    plan::{Break, Broken, Plan, Process},
};
use locker_cas::fake::{self, World};
use locker_checker::format::{End, Fault, Header, Kind, Line, Losses, Operation, Outcome, VERSION};
use locker_core::{background, store::opening::Opening};
use locker_runtime::Locker;
use std::{
    collections::BTreeMap,
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
    /// The number of holds that were granted.
    pub(crate) holds: u64,
    /// The number of them that were lost.
    pub(crate) lost: u64,
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
    let made: Vec<Place> =
        plan.processes.iter().map(|process| place(process.clock, &fleet, &record, &places)).collect();
    for (place, process) in made.iter().zip(&plan.processes) {
        start(plan, process, place, &world);
    }
    // It is set once.
    let _ = places.set(made.clone());
    break_things(plan, &fleet, &made, &world, &record);
    let is_done = |place: &Place| fleet.is_killed(place.number) || place.callers.load(Ordering::Relaxed) == 0;
    fleet.run(END, || made.iter().all(is_done));
    let is_over = made.iter().all(is_done);
    record.add(Line::End(End { at: fleet.now() * 1_000 }));
    let (time, trace) = (fleet.now(), fleet.digest());
    let writes = plan.writes.filter(|most| world.writes() > *most);
    fleet.abandon();
    // Their drops are those of another process.
    std::mem::forget((made, places));
    let history = record.lines();
    let mut run = Run { trace, history, problems: Vec::new(), holds: 0, lost: 0, time };
    judge(plan, &mut run);
    run.problems.extend((!is_over).then(|| format!("callers have not ended after {END} us")));
    run.problems.extend(writes.map(|most| format!("{} writes, at most {most} are needed", world.writes())));
    run
}

fn header(plan: &Plan) -> Header {
    let second = 1_000_000_000;
    let stop = |broken: &Break| if let Broken::Stopped { time, .. } = broken.what { time } else { 0 };
    let stops: u64 = plan.breaks.iter().map(stop).sum();
    Header {
        version: VERSION,
        store: format!("simulated, {}", if plan.ticked { "ticked clock" } else { "served clock" }),
        made_by: format!("locker-sim --seed {}", plan.seed),
        seed: Some(plan.seed),
        lease: 5 * second,
        // Whoever is admitted does not wait for the disk.
        loses: if plan.has_crash() { Losses::Admissions } else { Losses::Nothing },
        calm: plan.is_calm(),
        joins_within: second,
        notices_within: second,
        returns_within: if plan.is_calm() { second / 2 } else { 2 * second + stops * 1_000_000 },
        clock_gains: if plan.ticked { second + stops * 1_000_000 } else { plan.delay * 1_000_000 },
        clocks_differ: second,
        circles_last: 0,
        stands_still_within: u64::MAX,
    }
}

fn place(clock: Clock, fleet: &Fleet, record: &Record, places: &Arc<OnceLock<Vec<Place>>>) -> Place {
    let (number, inhabitant) = fleet.add(clock);
    Place {
        fleet: fleet.clone(),
        number,
        locker: Arc::default(),
        inhabitant,
        record: record.clone(),
        callers: Arc::default(),
        places: Arc::clone(places),
    }
}

/// Starts the callers of a process, at its time.
fn start(plan: &Plan, process: &Process, place: &Place, world: &Arc<World>) {
    let clock = if plan.ticked { "ticked" } else { "served" };
    let parameters = format!("clock={clock}&delay={}ms&faults={}", plan.delay, plan.faults);
    let (place, process, world) = (place.clone(), process.clone(), Arc::clone(world));
    place.callers.fetch_add(process.callers.len(), Ordering::Relaxed);
    place.inhabitant.clone().spawn(async move {
        background::sleep(Duration::from_millis(process.starts)).await;
        let store = fake::open_in(world, &parameters, &Opening::default()).expect("right parameters");
        let builder = Locker::builder().store(store).command_timeout(Duration::from_secs(1));
        // It is set once.
        let _ = place.locker.set(builder.build().await.expect("right settings"));
        for (caller, steps) in process.callers.into_iter().enumerate() {
            let place = place.clone();
            background::spawn(async move {
                place.carry_out(caller, &steps).await;
                place.callers.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

/// Runs until everything has broken that is to break, and was mended.
fn break_things(plan: &Plan, fleet: &Fleet, places: &[Place], world: &World, record: &Record) {
    let mut events: Vec<(u64, bool, Broken)> = Vec::new();
    for &Break { at, what } in &plan.breaks {
        events.push((at, true, what));
        if let Broken::Stopped { time, .. } | Broken::Deaf { time, .. } = what {
            events.push((at + time, false, what));
        }
    }
    events.sort_by_key(|(at, ..)| *at);
    for (at, breaks, what) in events {
        fleet.run(at * 1_000, || false);
        let place = match what {
            Broken::StoreCrashed => None,
            Broken::Killed { process } | Broken::Stopped { process, .. } | Broken::Deaf { process, .. } => {
                Some(&places[process])
            }
        };
        if place.is_some_and(|place| fleet.is_killed(place.number)) {
            continue;
        }
        let fault = match (what, place) {
            (Broken::Killed { .. }, Some(place)) => {
                fleet.kill(place.number);
                "kill"
            }
            (Broken::Stopped { .. }, Some(place)) => {
                fleet.set_stopped(place.number, breaks);
                if breaks { "stop" } else { "continue" }
            }
            (Broken::Deaf { .. }, Some(place)) => {
                world.set_deaf(&place.inhabitant, breaks);
                if breaks { "deaf" } else { "hears again" }
            }
            _ => {
                world.crash();
                "crash of the store"
            }
        };
        let process = place.map(|place| place.number as u64);
        record.add(Line::Fault(Fault { at: fleet.now() * 1_000, fault: fault.into(), process }));
    }
}

/// Adds what the checker finds, and the patient callers that were never served.
fn judge(plan: &Plan, run: &mut Run) {
    let verdict = match locker_checker::judge(run.text().as_bytes()) {
        Ok(verdict) => verdict,
        Err(unreadable) => return run.problems.push(unreadable.to_string()),
    };
    (run.holds, run.lost) = (verdict.grants.values().sum::<usize>() as u64, verdict.lost as u64);
    // A short run may have asked for nothing.
    let asked = |problem: &String| problem != "no caller was granted anything";
    run.problems.extend(verdict.problems.iter().map(ToString::to_string).filter(asked));
    for (number, line) in run.history.iter().enumerate() {
        if let Line::Operation(call) = line
            && matches!(call.outcome, Outcome::TimedOut | Outcome::Unknown)
            && call.timeout.is_some_and(|timeout| timeout >= plan.patience * 1_000_000)
        {
            run.problems.push(format!(
                "line {}: not served within {} ms: {call:?}",
                number + 1,
                plan.patience
            ));
        }
    }
    if plan.is_calm() {
        run.problems.extend(failures(&run.history));
        run.problems.extend(late_handovers(&run.history));
    }
}

/// Returns the calls that failed although nothing broke. Where all write at once, a caller that gives up after a few
/// round trips may never get an answer.
fn failures(history: &[Line]) -> Vec<String> {
    const HURRIED: u64 = 200_000_000;
    let is_hurried = |call: &Operation| call.timeout.is_some_and(|timeout| (1..HURRIED).contains(&timeout));
    let failed = |(number, line): (usize, &Line)| match line {
        Line::Operation(call) if call.outcome == Outcome::Unknown && !is_hurried(call) => {
            Some(format!("line {}: failed without a fault: {call:?}", number + 1))
        }
        _ => None,
    };
    history.iter().enumerate().filter_map(failed).collect()
}

/// Returns the waiters at a lock that was released, and that they got late although nothing was lost.
fn late_handovers(history: &[Line]) -> Vec<String> {
    const SOON: u64 = 400_000_000;
    // The last line about a call counts.
    let mut grants = BTreeMap::new();
    for line in history {
        if let Line::Operation(call) = line
            && call.kind == Kind::Lock
            && let Some(fence) = call.fence
        {
            grants.insert((&call.name, fence), call);
        }
    }
    let grants: Vec<_> = grants.into_iter().collect();
    let pairs =
        grants.windows(2).filter(|pair| pair[0].0.0 == pair[1].0.0).map(|pair| (&**pair[0].1, &**pair[1].1));
    let late = |(before, next): (&Operation, &Operation)| {
        let released = before.ended.filter(|_| before.outcome == Outcome::Released);
        let is_late = |at: u64| next.asked + SOON < at && next.entered > Some(at + SOON);
        released.is_some_and(is_late).then(|| format!("late hand-over: {before:?}, then {next:?}"))
    };
    pairs.filter_map(late).collect()
}
