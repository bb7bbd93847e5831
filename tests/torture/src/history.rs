//! What the workers say, and what must be true of it.

use crate::checks::{Hold, broken, inversions};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    /// By name; of each the worker, its fence and the moment it entered.
    holds: BTreeMap<String, BTreeMap<(u32, u64, u64), Hold>>,
    missed: u64,
    lost: u64,
    /// Holds that were called lost while their leases ran.
    lost_early: Vec<String>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) problems: Vec<String>,
    pub(crate) fenced_updates: u64,
    pub(crate) plain_updates: u64,
    pub(crate) plain_lost: u64,
    grants: usize,
    too_late: usize,
    missed: u64,
    lost: u64,
    inversions: usize,
}

impl History {
    /// Takes in one line of a worker; half a line of a killed one is nothing. A hold is told of before each write
    /// under it and when it has ended: the last that was heard of it counts.
    pub(crate) fn read(&self, worker: u32, line: &str) {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["missed", _] => recorded.missed += 1,
            [state @ ("holding" | "released" | "lost" | "early"), name, fence, asked, entered, seen, "."] => {
                let number = |text: &str| text.parse().ok();
                let (Some(fence), Some(asked), Some(entered)) =
                    (number(fence), number(asked), number(entered))
                else {
                    return;
                };
                recorded.lost += u64::from(state == "lost");
                let hold = Hold { worker, fence, asked, entered, seen: number(seen) };
                if state == "early" {
                    recorded.lost_early.push(format!("called lost while its lease ran on {name}: {hold:?}"));
                }
                recorded.holds.entry(name.to_owned()).or_default().insert((worker, fence, entered), hold);
            }
            _ => {}
        }
    }

    /// Judges everything; order of service only where the weather was calm.
    pub(crate) fn judge(&self, calm_until: u64) -> Verdict {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut verdict = Verdict {
            missed: recorded.missed,
            lost: recorded.lost,
            problems: recorded.lost_early.clone(),
            ..Verdict::default()
        };
        for (name, holds) in &recorded.holds {
            let holds: Vec<Hold> = holds.values().cloned().collect();
            verdict.grants += holds.len();
            verdict.too_late += holds.iter().filter(|hold| hold.seen.is_none()).count();
            verdict
                .problems
                .extend(broken(&holds).into_iter().map(|problem| format!("on {name}, {problem}")));
            let unfair = inversions(&holds);
            verdict.inversions += unfair.len();
            let calm = unfair.into_iter().filter(|(_, second)| second.entered < calm_until);
            verdict.problems.extend(
                calm.map(|(first, second)| {
                    format!("served out of turn on {name}: {first:?} after {second:?}")
                }),
            );
        }
        if verdict.grants == verdict.too_late {
            verdict.problems.push("nobody got a lock".into());
        }
        verdict
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} grants, {} given up, {} lost and told so", self.grants, self.missed, self.lost)?;
        writeln!(f, "{} guards dead when first looked at, nothing written under them", self.too_late)?;
        writeln!(f, "{} served out of turn, over reconnects and restarts", self.inversions)?;
        writeln!(f, "{} updates under a fence, none lost unless listed below", self.fenced_updates)?;
        writeln!(f, "{} updates under the lock alone, {} lost", self.plain_updates, self.plain_lost)?;
        for problem in self.problems.iter().take(20) {
            writeln!(f, "problem: {problem}")?;
        }
        write!(f, "{} problems", self.problems.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[(u32, &str)]) -> History {
        let history = History::default();
        for (worker, line) in lines {
            history.read(*worker, line);
        }
        history
    }

    #[test]
    fn a_hold_is_told_of_several_times_and_counts_once() {
        let history = told(&[
            (1, "holding a 1 0 10 11 ."),
            (1, "holding a 1 0 10 15 ."),
            (1, "released a 1 0 10 20 ."),
            (2, "released a 2 0 21 30 ."),
            (3, "lost a 3 0 90 - ."),
        ]);
        let verdict = history.judge(0);
        assert_eq!((verdict.grants, verdict.too_late, verdict.lost), (3, 1, 1));
        assert_eq!(verdict.problems, [""; 0]);
    }

    #[test]
    fn a_hold_whose_worker_was_killed_at_work_is_judged() {
        let history = told(&[
            (1, "holding a 1 0 10 20 ."),
            (1, "released a 1 0 10 30"),
            (2, "holding a 2 0 19 25 ."),
            (2, "released a 2 0 19 2"),
        ]);
        assert_eq!(history.judge(0).problems.len(), 1);
    }

    #[test]
    fn a_hold_that_is_called_lost_while_its_lease_runs_is_a_problem() {
        let history = told(&[(1, "lost a 1 0 10 20 ."), (1, "early a 2 0 21 30 .")]);
        let problems = history.judge(0).problems;
        assert!(problems.len() == 1 && problems[0].starts_with("called lost"), "{problems:?}");
    }

    #[test]
    fn a_history_without_holds_proves_nothing() {
        assert_eq!(told(&[(1, "missed a"), (1, "lost a 1 0 90 - .")]).judge(0).problems.len(), 1);
    }

    #[test]
    fn holds_of_different_locks_may_overlap() {
        let history = told(&[(1, "released a 2 0 10 20 ."), (2, "released b 1 0 10 20 .")]);
        assert_eq!(history.judge(0).problems, [""; 0]);
    }
}
