//! The reports of the workers, and the verdict on them.

use crate::{
    kinds::{self, Kind},
    together,
};
use locker_checker::{
    holds::{Hold, broken, inversions},
    limits::{Admitted, Slack},
    steps::{Calm, Part, Parts, read},
    verdict::Verdict,
};
use locker_runtime::Locker;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// What a store loses by its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Losses {
    None,
    /// The last admissions of limiters.
    Admissions,
    /// The last writes. Holds end early then, and nothing else is safe.
    Writes,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    /// By name; each hold by its worker, its fence and the time of its entry.
    holds: BTreeMap<String, BTreeMap<(u32, u64, u64), Hold>>,
    /// By the name of the limiter.
    admitted: BTreeMap<String, Vec<Admitted>>,
    parts: Parts,
    refused: u64,
    missed: u64,
    lost: u64,
    /// Calls that did not return.
    hanging: Vec<String>,
    /// Holds that were reported as lost while their leases ran.
    early: Vec<String>,
}

impl History {
    /// Reads one line of a worker. The partial line of a killed worker is ignored.
    ///
    /// A hold is reported before each write under it and at its end. The last report counts.
    pub(crate) fn read(&self, worker: u32, line: &str) {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse().ok();
        match words[..] {
            ["missed", _] => recorded.missed += 1,
            ["refused", _] => recorded.refused += 1,
            ["hanging", name, since, "."] => {
                recorded.hanging.push(format!("a call of worker {worker} to {name} hangs since {since}"));
            }
            ["admitted", name, tokens, asked, entered, "."] => {
                let (Some(tokens), Some(asked), Some(entered)) =
                    (number(tokens), number(asked), number(entered))
                else {
                    return;
                };
                let admitted = Admitted { asked, entered, tokens };
                recorded.admitted.entry(name.to_owned()).or_default().push(admitted);
            }
            [
                state @ ("holding" | "released" | "lost" | "early"),
                name,
                fence,
                share,
                asked,
                entered,
                seen,
                place,
                ".",
            ] => {
                let (Some(fence), Some(share), Some(asked), Some(entered)) =
                    (number(fence), number(share), number(asked), number(entered))
                else {
                    return;
                };
                recorded.lost += u64::from(state == "lost");
                let hold =
                    Hold { worker, fence, share, asked, entered, seen: number(seen), in_line: place == "0" };
                if state == "early" {
                    recorded.early.push(format!("reported as lost while its lease ran on {name}: {hold:?}"));
                }
                recorded.holds.entry(name.to_owned()).or_default().insert((worker, fence, entered), hold);
            }
            _ => drop(read(&mut recorded.parts, &words)),
        }
    }

    /// Judges the calls to counters, events, latches, barriers and watchdogs, and the state that they left in the
    /// store.
    pub(crate) fn judge_together(&self, locker: &Locker, calm: Calm, verdict: &mut Verdict) {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, parts) in &recorded.parts {
            *verdict.steps.entry(kind(name).to_owned()).or_default() += parts.len();
        }
        verdict.problems.extend(together::judge(&recorded.parts, locker, calm));
    }

    /// Judges everything else. The order of service is judged only for the calm time before the first fault, among
    /// callers that asked more than `clearly` apart. `losses`, and that its clock `gains`, are not held against the
    /// store.
    pub(crate) fn judge(
        &self,
        calm_until: u64,
        clearly: Duration,
        losses: Losses,
        gains: Duration,
    ) -> Verdict {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut verdict = Verdict {
            missed: recorded.missed,
            refused: recorded.refused,
            lost: recorded.lost,
            problems: recorded.hanging.clone(),
            ..Verdict::default()
        };
        if losses != Losses::Writes {
            verdict.problems.extend(recorded.early.iter().cloned());
        }
        for (name, holds) in &recorded.holds {
            let holds: Vec<Hold> = holds.values().cloned().collect();
            *verdict.grants.entry(kind(name).to_owned()).or_default() += holds.len();
            verdict.too_late += holds.iter().filter(|hold| hold.seen.is_none()).count();
            verdict.problems.extend(
                broken(&holds, Kind::of(name).map_or(1, Kind::whole))
                    .into_iter()
                    .map(|problem| format!("on {name}, {problem}")),
            );
            let unfair = inversions(&holds, clearly);
            verdict.inversions += unfair.len();
            let calm = unfair.into_iter().filter(|(_, second)| second.entered < calm_until);
            verdict.problems.extend(
                calm.map(|(first, second)| {
                    format!("served out of order on {name}: {first:?} after {second:?}")
                }),
            );
        }
        let slack = Slack { starts_anew: losses != Losses::None, gains };
        for (name, admitted) in &recorded.admitted {
            verdict.admitted += admitted.len();
            let broken = kinds::limit(name).broken(admitted, slack);
            verdict.problems.extend(broken.into_iter().map(|problem| format!("on {name}, {problem}")));
        }
        let silent = verdict.admitted == 0 && !recorded.parts.values().flatten().any(Part::is_done);
        if silent && verdict.grants.values().sum::<usize>() == verdict.too_late {
            verdict.problems.push("no caller was granted anything".into());
        }
        verdict
    }
}

fn kind(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEARLY: Duration = Duration::from_millis(200);

    fn history(lines: &[(u32, &str)]) -> History {
        let history = History::default();
        for (worker, line) in lines {
            history.read(*worker, line);
        }
        history
    }

    #[test]
    fn repeated_reports_count_as_one_hold() {
        let history = history(&[
            (1, "holding a 1 1 0 10 11 0 ."),
            (1, "holding a 1 1 0 10 15 0 ."),
            (1, "released a 1 1 0 10 20 0 ."),
            (2, "released a 2 1 0 21 30 0 ."),
            (3, "lost a 3 1 0 90 - 0 ."),
        ]);
        let verdict = history.judge(0, CLEARLY, Losses::None, Duration::ZERO);
        assert_eq!((verdict.grants["a"], verdict.too_late, verdict.lost), (3, 1, 1));
        assert_eq!(verdict.problems, [""; 0]);
    }

    #[test]
    fn hold_of_a_killed_worker_is_judged() {
        let history = history(&[
            (1, "holding a 1 1 0 10 20 0 ."),
            (1, "released a 1 1 0 10 30"),
            (2, "holding a 2 1 0 19 25 0 ."),
            (2, "released a 2 1 0 19 2"),
        ]);
        assert_eq!(history.judge(0, CLEARLY, Losses::None, Duration::ZERO).problems.len(), 1);
    }

    #[test]
    fn loss_during_a_running_lease_is_a_problem() {
        let history = history(&[(1, "lost a 1 1 0 10 20 0 ."), (1, "early a 2 1 0 21 30 0 .")]);
        let problems = history.judge(0, CLEARLY, Losses::None, Duration::ZERO).problems;
        assert!(problems.len() == 1 && problems[0].starts_with("reported as lost"), "{problems:?}");
    }

    #[test]
    fn each_kind_is_judged_by_its_own_measure() {
        let two = |name: &str| {
            let line = |fence: u64| format!("released {name} {fence} 1 0 10 20 0 .");
            history(&[(1, &line(1)), (2, &line(2))])
                .judge(0, CLEARLY, Losses::None, Duration::ZERO)
                .problems
                .len()
        };
        assert_eq!([two("lock:0"), two("semaphore:0"), two("read-write:0")], [1, 0, 0]);
        let writing = history(&[
            (1, "released read-write:0 1 1 0 10 20 0 ."),
            (2, "released read-write:0 2 1000 0 19 20 0 ."),
        ]);
        assert_eq!(writing.judge(0, CLEARLY, Losses::None, Duration::ZERO).problems.len(), 1);
        let admitted = history(&[
            (1, "admitted limiter:1 5 10 11 ."),
            (1, "refused limiter:1"),
            (2, "admitted limiter:1 1 10 1"),
        ]);
        assert_eq!(admitted.judge(0, CLEARLY, Losses::None, Duration::ZERO).problems, [""; 0]);
        admitted.read(2, "admitted limiter:1 1 10 12 .");
        assert_eq!(admitted.judge(0, CLEARLY, Losses::None, Duration::ZERO).problems.len(), 1);
    }

    #[test]
    fn a_history_without_holds_proves_nothing() {
        for ungranted in ["lost a 1 1 0 90 - 0 .", "trying counter:0 Add 1 5 ."] {
            assert_eq!(
                history(&[(1, "missed a"), (1, ungranted)])
                    .judge(0, CLEARLY, Losses::None, Duration::ZERO)
                    .problems
                    .len(),
                1,
                "{ungranted}"
            );
        }
    }

    #[test]
    fn holds_of_different_locks_may_overlap() {
        let history = history(&[(1, "released a 2 1 0 10 20 0 ."), (2, "released b 1 1 0 10 20 0 .")]);
        assert_eq!(history.judge(0, CLEARLY, Losses::None, Duration::ZERO).problems, [""; 0]);
    }
}
