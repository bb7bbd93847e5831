//! Counters, events, latches, barriers and watchdogs: the calls of the workers, and the verdict on them.
//!
//! A worker reports each step before and after it. A step without a second report, because its worker was killed or its
//! outcome is unknown, may have been taken at any later time, or never.

mod laws;

use crate::{
    kinds::Kind,
    record::{now, say},
};
use fastrand::Rng;
use locker_runtime::{ErrorKind, Locker, Result};
use std::{collections::BTreeMap, time::Duration};

/// The count of the latches.
const COUNT: u64 = 4;
/// The parties of the barriers.
const PARTIES: u64 = 3;
/// The time after which all callers change to the next event, latch, barrier and watchdog.
const ROUND: u64 = 400_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add,
    Send,
    Await,
    CountDown,
    Pass,
    Arrive,
    Kick,
    Expire,
}

const STEPS: [Step; 8] =
    [Step::Add, Step::Send, Step::Await, Step::CountDown, Step::Pass, Step::Arrive, Step::Kick, Step::Expire];

/// The reports of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    step: Step,
    /// The id of the step. It is also the message of a sender, and the time of a kick follows from it.
    id: u64,
    asked: u64,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    at: u64,
    /// The value that the step returned, or `None` if it provably was not taken.
    value: Option<u64>,
}

impl Part {
    /// Returns `true` if the step provably was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.ended.is_some_and(|ended| ended.value.is_some())
    }

    /// Returns `true` if the step provably was not taken.
    fn is_not_taken(&self) -> bool {
        self.ended.is_some_and(|ended| ended.value.is_none())
    }

    /// Returns the latest time at which the step can have ended.
    fn over(&self) -> u64 {
        self.ended.map_or(u64::MAX, |ended| ended.at)
    }
}

/// The steps by name.
pub(crate) type Parts = BTreeMap<String, Vec<Part>>;

/// The state that the workers leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Sum(u64),
    Message(Option<u64>),
    Open(bool),
    Expired(bool),
    Nothing,
}

/// The time without faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calm {
    pub(crate) until: u64,
    /// How much later, in nanoseconds, a waiter has surely noticed.
    pub(crate) clearly: u64,
}

/// Takes one step with `name`, and reports it before and after.
pub(crate) fn take_part(kind: Kind, locker: &Locker, name: &str, rng: &mut Rng) -> Option<()> {
    let name = if kind == Kind::Counter { name.to_owned() } else { format!("{name}:{}", now() / ROUND) };
    let longest = if rng.u8(..8) == 0 { 4_000 } else { 600 };
    let (patience, id) = (Duration::from_millis(rng.u64(..longest)), rng.u64(..));
    let step = match kind {
        Kind::Counter => Step::Add,
        Kind::Event if rng.u8(..4) == 0 => Step::Send,
        Kind::Event => Step::Await,
        Kind::Latch if rng.bool() => Step::CountDown,
        Kind::Latch => Step::Pass,
        Kind::Watchdog if rng.bool() => Step::Kick,
        Kind::Watchdog => Step::Expire,
        _ => Step::Arrive,
    };
    say(&format!("trying {name} {step:?} {id} {} .", now()))?;
    match take(step, locker, &name, id, patience) {
        Ok(value) => say(&format!("done {name} {id} {value} {} .", now())),
        Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::TimedOut) => {
            say(&format!("not {name} {id} {} .", now()))
        }
        Err(_) => Some(()),
    }
}

fn take(step: Step, locker: &Locker, name: &str, id: u64, patience: Duration) -> Result<u64> {
    // No sender has sent any other text.
    let sender = |text: String| text.parse().unwrap_or(u64::MAX);
    match step {
        Step::Add => locker.counter(name).add_blocking(1).map(i64::unsigned_abs),
        Step::Send => locker.event(name).send_blocking(&id.to_string()).map(|()| id),
        Step::Await => locker.event(name).wait_blocking(patience).map(sender),
        Step::CountDown => locker.latch(name, COUNT).count_down_blocking(),
        Step::Pass => locker.latch(name, COUNT).wait_blocking(patience).map(|()| 0),
        Step::Arrive => locker.barrier(name, PARTIES).wait_blocking(patience).map(|()| 0),
        Step::Kick => locker.watchdog(name).kick_blocking(Duration::from_nanos(lasts(id))).map(|()| 0),
        Step::Expire => locker.watchdog(name).wait_blocking(patience).map(|()| 0),
    }
}

/// Returns the time for which a kick lasts, in nanoseconds.
fn lasts(id: u64) -> u64 {
    1_000_000 + id % LONGEST
}

const LONGEST: u64 = 500_000_000;
/// How much later than at its end an expiry may be noticed when everything is over.
const UNHURRIED: Duration = Duration::from_secs(3);

/// Reads a worker's report of a step. Other lines, and the partial line of a killed worker, are ignored.
pub(crate) fn read(parts: &mut Parts, words: &[&str]) -> Option<()> {
    let number = |text: &str| text.parse().ok();
    match *words {
        ["trying", name, step, id, asked, "."] => {
            let (id, asked) = (number(id)?, number(asked)?);
            let step = STEPS.into_iter().find(|known| format!("{known:?}") == step)?;
            parts.entry(name.to_owned()).or_default().push(Part { step, id, asked, ended: None });
        }
        ["done", name, id, value, at, "."] => {
            end(parts, name, number(id)?, Ended { at: number(at)?, value: Some(number(value)?) })?;
        }
        ["not", name, id, at, "."] => {
            end(parts, name, number(id)?, Ended { at: number(at)?, value: None })?;
        }
        _ => {}
    }
    Some(())
}

fn end(parts: &mut Parts, name: &str, id: u64, ended: Ended) -> Option<()> {
    parts.get_mut(name)?.iter_mut().rev().find(|part| part.id == id)?.ended = Some(ended);
    Some(())
}

/// Judges all steps, and the state that they left in the store.
pub(crate) fn judge(parts: &Parts, locker: &Locker, calm: Calm) -> Vec<String> {
    let judge = |(name, parts): (&String, &Vec<Part>)| {
        let problems = match left(locker, name, parts) {
            Ok(left) => laws::problems(parts, left, calm),
            Err(error) => vec![format!("the state that is left cannot be read: {error}")],
        };
        problems.into_iter().map(|problem| format!("on {name}, {problem}")).collect::<Vec<_>>()
    };
    parts.iter().flat_map(judge).collect()
}

/// Returns the times and values of these steps, in order of time.
fn done(parts: &[Part], step: Step) -> Vec<(u64, u64)> {
    let ended = parts.iter().filter(|part| part.step == step).filter_map(|part| part.ended);
    let mut done: Vec<(u64, u64)> = ended.filter_map(|ended| Some((ended.at, ended.value?))).collect();
    done.sort_unstable();
    done
}

fn left(locker: &Locker, name: &str, parts: &[Part]) -> Result<Left> {
    let no_wait = Duration::ZERO;
    let look = |there: Result<()>| match there {
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
        there => there.map(|()| true),
    };
    match Kind::of(name) {
        Some(Kind::Counter) => locker.counter(name).get_blocking().map(|sum| Left::Sum(sum.unsigned_abs())),
        Some(Kind::Event) => {
            let mut message = None;
            let sent = locker
                .event(name)
                .wait_blocking(no_wait)
                .map(|text| message = Some(text.parse().unwrap_or(u64::MAX)));
            look(sent).map(|_| Left::Message(message))
        }
        Some(Kind::Latch) => look(locker.latch(name, COUNT).wait_blocking(no_wait)).map(Left::Open),
        Some(Kind::Watchdog) => {
            let was_kicked = !done(parts, Step::Kick).is_empty();
            let longest = if was_kicked { Duration::from_nanos(LONGEST) + UNHURRIED } else { no_wait };
            look(locker.watchdog(name).wait_blocking(longest)).map(Left::Expired)
        }
        _ => Ok(Left::Nothing),
    }
}

#[cfg(test)]
fn parts(lines: &[&str]) -> Vec<Part> {
    let mut parts = Parts::new();
    for line in lines {
        read(&mut parts, &line.split(' ').collect::<Vec<_>>());
    }
    parts.remove("x").unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_line_is_ignored() {
        let found = parts(&["trying x Add 1 5 .", "done x 1 1 9", "trying x Add 2 6", "done x 3 1 9 ."]);
        assert_eq!(found, [Part { step: Step::Add, id: 1, asked: 5, ended: None }]);
    }
}
