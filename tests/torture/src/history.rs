//! What the workers say, and what must be true of it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// One hold, in nanoseconds of the machine's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    worker: u32,
    fence: u64,
    asked: u64,
    entered: u64,
    /// The last moment at which the guard was surely held.
    seen: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    holds: BTreeMap<String, Vec<Hold>>,
    missed: u64,
    lost: u64,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) problems: Vec<String>,
    pub(crate) fenced_updates: u64,
    pub(crate) plain_updates: u64,
    pub(crate) plain_lost: u64,
    grants: usize,
    missed: u64,
    lost: u64,
    inversions: usize,
}

impl History {
    /// Takes in one line of a worker; half a line of a killed one is nothing.
    pub(crate) fn read(&self, worker: u32, line: &str) {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["missed", _] => recorded.missed += 1,
            ["held", name, fence, asked, entered, seen, ended] => {
                let number = |text: &str| text.parse().ok();
                let (Some(fence), Some(asked), Some(entered), Some(seen)) =
                    (number(fence), number(asked), number(entered), number(seen))
                else {
                    return;
                };
                recorded.lost += u64::from(ended == "lost");
                let hold = Hold { worker, fence, asked, entered, seen };
                recorded.holds.entry(name.to_owned()).or_default().push(hold);
            }
            _ => {}
        }
    }

    /// Judges everything; order of service only where the weather was calm.
    pub(crate) fn judge(&self, calm_until: u64) -> Verdict {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut verdict = Verdict { missed: recorded.missed, lost: recorded.lost, ..Verdict::default() };
        for (name, holds) in &recorded.holds {
            // A process that was stopped between getting a lock and looking at it held it for no moment.
            let mut holds: Vec<Hold> = holds.iter().filter(|hold| hold.seen > 0).cloned().collect();
            holds.sort_by_key(|hold| hold.entered);
            verdict.grants += holds.len();
            verdict.problems.extend(overlaps(name, &holds));
            verdict.problems.extend(fences_out_of_order(name, &holds));
            let unfair = inversions(&holds);
            verdict.inversions += unfair.len();
            let calm = unfair.into_iter().filter(|(_, second)| second.entered < calm_until);
            verdict.problems.extend(
                calm.map(|(first, second)| {
                    format!("served out of turn on {name}: {first:?} after {second:?}")
                }),
            );
        }
        if verdict.grants == 0 {
            verdict.problems.push("nobody got a lock".into());
        }
        verdict
    }
}

/// Two who surely held at the same time.
fn overlaps(name: &str, holds: &[Hold]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut last: Option<&Hold> = None;
    for hold in holds {
        if let Some(before) = last.filter(|before| hold.entered < before.seen) {
            problems.push(format!("overlap on {name}: {before:?} and {hold:?}"));
        }
        if last.is_none_or(|before| hold.seen > before.seen) {
            last = Some(hold);
        }
    }
    problems
}

/// Whoever comes later has the higher fence.
fn fences_out_of_order(name: &str, holds: &[Hold]) -> Vec<String> {
    let later = |pair: &&[Hold]| pair[1].fence <= pair[0].fence;
    let problem = |pair: &[Hold]| format!("fences on {name}: {:?} before {:?}", pair[0], pair[1]);
    holds.windows(2).filter(later).map(problem).collect()
}

/// Who asked clearly later and was served earlier.
fn inversions(holds: &[Hold]) -> Vec<(&Hold, &Hold)> {
    let clearly = u64::try_from(Duration::from_millis(200).as_nanos()).unwrap_or(u64::MAX);
    let mut found = Vec::new();
    for (at, hold) in holds.iter().enumerate() {
        found.extend(
            holds[..at]
                .iter()
                .rev()
                .take(32)
                .filter(|other| hold.asked + clearly < other.asked)
                .map(|other| (hold, other)),
        );
    }
    found
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} grants, {} given up, {} lost and told so", self.grants, self.missed, self.lost)?;
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

    fn hold(fence: u64, asked: u64, entered: u64, seen: u64) -> Hold {
        Hold { worker: 1, fence, asked, entered, seen }
    }

    #[test]
    fn the_checkers_find_what_they_are_for() {
        let good = [hold(1, 0, 10, 20), hold(2, 0, 21, 30)];
        assert!(overlaps("a", &good).is_empty() && fences_out_of_order("a", &good).is_empty());
        assert_eq!(overlaps("a", &[hold(1, 0, 10, 20), hold(2, 0, 19, 30)]).len(), 1);
        assert_eq!(overlaps("a", &[hold(1, 0, 10, 90), hold(2, 0, 19, 30), hold(3, 0, 31, 40)]).len(), 2);
        assert_eq!(fences_out_of_order("a", &[hold(2, 0, 10, 20), hold(2, 0, 21, 30)]).len(), 1);
        let second = 1_000_000_000;
        assert_eq!(inversions(&[hold(1, second, 2 * second, 0), hold(2, 0, 3 * second, 0)]).len(), 1);
        assert!(inversions(&good).is_empty());
    }
}
