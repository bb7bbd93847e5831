//! Counters, events, latches, barriers and watchdogs: the reports of the calls, and their laws.
//!
//! A worker reports each step before and after it. A step without a second report, because its worker was killed or its
//! outcome is unknown, may have been taken at any later time, or never.

mod laws;

pub use laws::problems;

use std::collections::BTreeMap;

/// The count of the latches.
pub const COUNT: u64 = 4;
/// The parties of the barriers.
pub const PARTIES: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Add,
    Send,
    Await,
    CountDown,
    Pass,
    Arrive,
    Kick,
    Expire,
}

pub const STEPS: [Step; 8] =
    [Step::Add, Step::Send, Step::Await, Step::CountDown, Step::Pass, Step::Arrive, Step::Kick, Step::Expire];

/// The reports of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub step: Step,
    /// The id of the step. It is also the message of a sender, and the time of a kick follows from it.
    pub id: u64,
    pub asked: u64,
    pub ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub at: u64,
    /// The value that the step returned, or `None` if it provably was not taken.
    pub value: Option<u64>,
}

impl Part {
    /// Returns `true` if the step provably was taken.
    pub fn is_done(&self) -> bool {
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
pub type Parts = BTreeMap<String, Vec<Part>>;

/// The state that the workers leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Sum(u64),
    Message(Option<u64>),
    Open(bool),
    Expired(bool),
    Nothing,
}

/// The time without faults.
#[derive(Clone, Copy, Debug)]
pub struct Calm {
    pub until: u64,
    /// How much later, in nanoseconds, a waiter has surely noticed.
    pub clearly: u64,
}

/// Returns the time for which a kick lasts, in nanoseconds.
pub fn lasts(id: u64) -> u64 {
    1_000_000 + id % LONGEST
}

pub const LONGEST: u64 = 500_000_000;

/// Reads a worker's report of a step. Other lines, and the partial line of a killed worker, are ignored.
pub fn read(parts: &mut Parts, words: &[&str]) -> Option<()> {
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

/// Returns the times and values of these steps, in order of time.
pub fn done(parts: &[Part], step: Step) -> Vec<(u64, u64)> {
    let ended = parts.iter().filter(|part| part.step == step).filter_map(|part| part.ended);
    let mut done: Vec<(u64, u64)> = ended.filter_map(|ended| Some((ended.at, ended.value?))).collect();
    done.sort_unstable();
    done
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
