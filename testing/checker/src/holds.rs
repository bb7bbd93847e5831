//! The laws of the holds of one lock, semaphore or read/write lock.
//!
//! A hold is granted between `asked` and `entered`. It is provably held from `entered` to `seen`, the last moment at
//! which the check of its guard succeeded. Fences rise from grant to grant. Therefore the holds, in the order of their
//! fences, obey two laws:
//!
//! 1. No caller enters while earlier holds provably take so many permits that too few are left for it. Any hold of a
//!    lock takes all of it.
//! 2. The second hold of a pair had not entered yet when the first one was asked for.
//!
//! A guard that is `Lost` at its first check has no `seen` and is excused from the first law. Its process was paused
//! between the grant and that check for longer than the lease, so it was provably held at no moment. Other callers may
//! hold at the same time, with higher fences; the rest is judged of such a guard, too. No worker has written under it,
//! because workers check the guard and report it before each write. A hold under which anything was written has a
//! `seen` and is never excused, also if its worker was killed right after.

use crate::{
    format::{Kind, Mode, Operation},
    history::Called,
    verdict::Problem,
};
use std::fmt;

/// One hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) line: usize,
    pub(crate) fence: u64,
    /// The number of permits that it takes.
    pub(crate) share: u64,
    pub(crate) asked: u64,
    pub(crate) entered: u64,
    /// The last moment at which the guard was provably held.
    pub(crate) seen: Option<u64>,
    /// Whether the caller was in the queue from `asked` on. Of several locks taken together, that is only the first.
    pub(crate) in_line: bool,
}

/// More readers than any history has: a writer takes as many permits as all of them together.
const ALL_READERS: u64 = 1 << 32;

impl Hold {
    /// Returns the hold of a call, if it was granted.
    pub(crate) fn of(called: &Called) -> Option<Self> {
        let call = &called.it;
        Some(Self {
            line: called.line,
            fence: call.fence?,
            share: share(call),
            asked: call.asked,
            entered: call.entered?,
            seen: call.seen,
            in_line: call.in_line,
        })
    }
}

fn share(call: &Operation) -> u64 {
    match call.mode {
        Some(Mode::Read) => 1,
        Some(Mode::Write) => ALL_READERS,
        None => call.permits,
    }
}

/// Returns how many permits can be held together.
pub(crate) fn whole(call: &Operation) -> u64 {
    if call.kind == Kind::ReadWrite { ALL_READERS } else { call.size }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fence, asked, entered, seen, .. } = self;
        write!(f, "fence {fence} asked {asked} entered {entered}")?;
        seen.map_or(Ok(()), |seen| write!(f, " seen {seen}"))
    }
}

/// Returns the violations of the laws, if `whole` permits can be held together.
pub(crate) fn broken(holds: &[Hold], whole: u64) -> Vec<Problem> {
    let holds = by_fence(holds);
    let mut problems = [fences_given_twice(&holds), entered_too_early(&holds, whole)].concat();
    let is_new = |problem: &Problem| problems.iter().all(|known| known.lines != problem.lines);
    let late: Vec<Problem> = asked_too_late(&holds).into_iter().filter(is_new).collect();
    problems.extend(late);
    problems
}

fn by_fence(holds: &[Hold]) -> Vec<&Hold> {
    let mut holds: Vec<&Hold> = holds.iter().collect();
    holds.sort_by_key(|hold| (hold.fence, hold.entered));
    holds
}

fn fences_given_twice(holds: &[&Hold]) -> Vec<Problem> {
    let twice = holds.windows(2).filter(|pair| pair[0].fence == pair[1].fence);
    twice.map(|pair| of(pair, format!("repeated fence: {}; {}", pair[0], pair[1]))).collect()
}

fn of(holds: &[&Hold], text: String) -> Problem {
    Problem::new(holds.iter().map(|hold| hold.line), text)
}

/// Checks the first law. Holds of lower fences are dropped once no later hold can overlap with them.
fn entered_too_early(holds: &[&Hold], whole: u64) -> Vec<Problem> {
    let mut earliest: Vec<u64> = holds.iter().map(|hold| hold.entered).collect();
    for at in (1..earliest.len()).rev() {
        earliest[at - 1] = earliest[at - 1].min(earliest[at]);
    }
    let mut problems = Vec::new();
    let mut lasting: Vec<&Hold> = Vec::new();
    for (hold, earliest) in holds.iter().zip(earliest) {
        lasting.retain(|before| Some(earliest) < before.seen);
        let there: Vec<&Hold> =
            lasting.iter().copied().filter(|before| Some(hold.entered) < before.seen).collect();
        let taken: u128 = there.iter().chain([hold]).map(|hold| u128::from(hold.share)).sum();
        if taken > whole.into() {
            let back = there.iter().any(|before| hold.entered < before.entered);
            let what = if back { "falling fence" } else { "overlap" };
            // The latest are enough to show it, unless each takes little of much.
            let there = &there[there.len().saturating_sub(Problem::NAMED)..];
            let held: Vec<String> = there.iter().map(ToString::to_string).collect();
            let all = [there, &[hold]].concat();
            problems.push(of(&all, format!("{what}: {}; {hold}", held.join("; "))));
        }
        lasting.push(hold);
    }
    problems
}

/// Checks the second law. Of all higher fences, only the first to enter matters.
fn asked_too_late(holds: &[&Hold]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut earliest: Option<&Hold> = None;
    for hold in holds.iter().rev() {
        if let Some(after) = earliest.filter(|after| after.entered < hold.asked) {
            let text = format!("falling fence: {after}, before this was asked for: {hold}");
            problems.push(of(&[after, hold], text));
        }
        if earliest.is_none_or(|after| hold.entered < after.entered) {
            earliest = Some(hold);
        }
    }
    problems
}

/// Returns the pairs of holds of which the one asked for later, by more than `clearly`, was served earlier, by their
/// fences.
///
/// Times of entry are not enough: of two callers that are served together, either may be the first to check.
pub(crate) fn inversions(holds: &[Hold], clearly: u64) -> Vec<(&Hold, &Hold)> {
    let mut holds: Vec<&Hold> = holds.iter().filter(|hold| hold.seen.is_some()).collect();
    holds.sort_by_key(|hold| hold.fence);
    let mut found = Vec::new();
    for (at, hold) in holds.iter().enumerate() {
        let before = holds[..at].iter().rev().take(32);
        let overtook = |other: &&&Hold| hold.in_line && hold.asked.saturating_add(clearly) < other.asked;
        found.extend(before.filter(overtook).map(|other| (*hold, *other)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(fence: u64, asked: u64, entered: u64, seen: impl Into<Option<u64>>) -> Hold {
        Hold { line: 1, fence, share: 1, asked, entered, seen: seen.into(), in_line: true }
    }

    fn problems(holds: &[Hold]) -> Vec<String> {
        problems_of(1, holds)
    }

    fn problems_of(whole: u64, holds: &[Hold]) -> Vec<String> {
        let broken = |holds: &[Hold]| -> Vec<String> {
            broken(holds, whole).into_iter().map(|problem| problem.text).collect()
        };
        let found = broken(holds);
        let backwards: Vec<Hold> = holds.iter().rev().cloned().collect();
        assert_eq!(broken(&backwards), found, "the order of the reports does not matter");
        found
    }

    #[test]
    fn holds_up_to_the_size_may_overlap() {
        let together = [hold(1, 0, 10, 20), hold(2, 0, 12, 30), hold(3, 0, 20, 40)];
        assert_eq!(problems_of(2, &together), [""; 0]);
        let found = problems_of(2, &[&together[..], &[hold(4, 0, 29, 29)]].concat());
        assert!(found.len() == 1 && found[0].starts_with("overlap"), "{found:?}");
    }

    #[test]
    fn hold_of_several_places_counts_as_several() {
        let several = |share, hold| Hold { share, ..hold };
        let (reader, writer) = (hold(1, 0, 10, 20), several(9, hold(2, 0, 20, 30)));
        assert_eq!(problems_of(9, &[reader.clone(), writer.clone(), hold(3, 0, 30, 40)]), [""; 0]);
        assert_eq!(problems_of(9, &[reader, writer.clone(), hold(3, 0, 29, 40)]).len(), 1);
        assert_eq!(problems_of(9, &[hold(1, 0, 10, 21), writer]).len(), 1);
    }

    /// Callers enter late; the order of the grants counts.
    #[test]
    fn places_are_counted_in_the_order_of_fences() {
        assert_eq!(problems_of(2, &[hold(1, 0, 30, 40), hold(2, 0, 10, 20), hold(3, 0, 25, 29)]), [""; 0]);
        let found = problems_of(2, &[hold(1, 0, 30, 40), hold(2, 0, 10, 26), hold(3, 0, 25, 29)]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn any_number_of_permits_is_counted() {
        let most = |hold| Hold { share: u64::MAX, ..hold };
        let found = problems_of(u64::MAX, &[most(hold(1, 0, 10, 20)), most(hold(2, 0, 15, 30))]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn problem_names_few_lines() {
        let holds: Vec<Hold> = (0..100).map(|line| Hold { line, ..hold(line as u64, 0, 10, 20) }).collect();
        let found = broken(&holds, 1);
        assert_eq!(found.len(), 99);
        assert!(found.iter().all(|problem| problem.lines.len() <= Problem::NAMED + 1), "{found:?}");
    }

    #[test]
    fn holds_one_after_the_other_are_fine() {
        assert_eq!(problems(&[]), [""; 0]);
        assert_eq!(problems(&[hold(1, 0, 10, 20), hold(2, 0, 21, 30), hold(7, 25, 31, 31)]), [""; 0]);
    }

    #[test]
    fn overlap_with_a_short_hold_is_found() {
        for second in [hold(2, 0, 19, 30), hold(2, 0, 10, 10), hold(2, 15, 19, 19)] {
            let found = problems(&[hold(1, 0, 10, 20), second]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("overlap"), "{found:?}");
        }
    }

    #[test]
    fn every_overlap_with_a_long_hold_is_found() {
        let found =
            problems(&[hold(1, 0, 10, 90), hold(2, 0, 19, 30), hold(3, 0, 31, 40), hold(4, 0, 91, 99)]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn overlap_behind_an_excused_hold_is_found() {
        let found = problems(&[hold(1, 0, 10, 50), hold(2, 0, 60, None), hold(3, 0, 40, 70)]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn falling_or_repeated_fence_is_found() {
        let found = problems(&[hold(2, 0, 10, 20), hold(1, 0, 21, 30)]);
        assert!(found.len() == 1 && found[0].starts_with("falling fence"), "{found:?}");
        let found = problems(&[hold(2, 0, 10, 20), hold(2, 0, 21, 30)]);
        assert!(found.len() == 1 && found[0].starts_with("repeated fence"), "{found:?}");
    }

    #[test]
    fn guard_dead_at_its_first_check_is_excused() {
        let (before, after) = (hold(2, 0, 15, 40), hold(3, 0, 41, 60));
        assert_eq!(problems(&[hold(1, 0, 30, None), before.clone(), after.clone()]), [""; 0]);
        assert_eq!(problems(&[hold(1, 0, 90, None), before.clone(), after.clone()]), [""; 0]);
        let found = problems(&[hold(1, 0, 30, 30), before, after]);
        assert_eq!(found.len(), 1, "a guard that passed a check is not excused: {found:?}");
    }

    #[test]
    fn dead_guard_has_no_fence_inside_a_hold() {
        let found = problems(&[hold(1, 0, 10, 50), hold(2, 0, 30, None)]);
        assert!(found.len() == 1 && found[0].starts_with("overlap"), "{found:?}");
    }

    /// By the times at which they were asked for.
    #[test]
    fn dead_guards_are_judged_by_their_requests() {
        assert_eq!(problems(&[hold(1, 0, 50, None), hold(2, 0, 20, None)]), [""; 0]);
        let found = problems(&[hold(1, 21, 50, None), hold(2, 0, 20, None)]);
        assert!(found.len() == 1 && found[0].starts_with("falling fence"), "{found:?}");
        let found = problems(&[hold(1, 0, 50, None), hold(1, 0, 20, None)]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn service_out_of_order_is_found() {
        let (second, margin) = (1_000_000_000, 200_000_000);
        let late = hold(1, second, 2 * second, 2 * second);
        let overtaken = hold(2, 0, 3 * second, 3 * second);
        assert_eq!(inversions(&[late.clone(), overtaken.clone()], margin).len(), 1);
        assert!(inversions(&[late.clone(), Hold { in_line: false, ..overtaken }], margin).is_empty());
        assert!(inversions(&[late, hold(2, second - 1, 3 * second, 3 * second)], margin).is_empty());
    }
}
