//! What must be true of the holds of one lock, semaphore or read/write lock.
//!
//! It is granted some time between `asked` and `entered`, and surely held from `entered` to `seen`, the last moment
//! of which [`Guard::check`](locker_runtime::Guard::check) said so. Fences rise from grant to grant. So the holds, in the
//! order of their fences, obey two laws:
//!
//! 1. nobody enters while those before surely hold so much that the whole does not suffice for both (of a lock, any
//!    hold is the whole);
//! 2. of each pair, the second had not entered yet when the first was asked for.
//!
//! One thing is excused, by having no `seen`: a guard that says `Lost` when it is first looked at. Its process stood
//! still between the grant and that look for longer than the lease, so it was surely held at no moment, and others may
//! hold meanwhile (with higher fences: everything else is judged of it too). Nobody has worked under it: workers look
//! before each write, and say that they saw it held before they write. A hold under which anything was written has
//! a `seen` and is never excused, also when its worker was killed right after.

use std::time::Duration;

/// One hold, in nanoseconds of the machine's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) worker: u32,
    pub(crate) fence: u64,
    /// How much of the whole it takes.
    pub(crate) share: u64,
    pub(crate) asked: u64,
    pub(crate) entered: u64,
    /// The last moment at which the guard was surely held.
    pub(crate) seen: Option<u64>,
    /// Whether it was in line from `asked` on; of several locks taken together only the first is.
    pub(crate) in_line: bool,
}

/// What breaks the laws where `whole` is all that can be held.
pub(crate) fn broken(holds: &[Hold], whole: u64) -> Vec<String> {
    let mut holds: Vec<&Hold> = holds.iter().collect();
    holds.sort_by_key(|hold| (hold.fence, hold.entered));
    [fences_given_twice(&holds), entered_too_early(&holds, whole), asked_too_late(&holds)].concat()
}

fn fences_given_twice(holds: &[&Hold]) -> Vec<String> {
    let twice = holds.windows(2).filter(|pair| pair[0].fence == pair[1].fence);
    twice.map(|pair| format!("one fence twice: {:?} and {:?}", pair[0], pair[1])).collect()
}

/// The first law. Those of lower fences that nobody who comes later could meet are forgotten.
fn entered_too_early(holds: &[&Hold], whole: u64) -> Vec<String> {
    let mut earliest: Vec<u64> = holds.iter().map(|hold| hold.entered).collect();
    for at in (1..earliest.len()).rev() {
        earliest[at - 1] = earliest[at - 1].min(earliest[at]);
    }
    let mut problems = Vec::new();
    let mut lasting: Vec<&Hold> = Vec::new();
    for (hold, earliest) in holds.iter().zip(earliest) {
        lasting.retain(|before| Some(earliest) < before.seen);
        let there: Vec<&&Hold> = lasting.iter().filter(|before| Some(hold.entered) < before.seen).collect();
        if there.iter().map(|before| before.share).sum::<u64>() + hold.share > whole {
            let back = there.iter().any(|before| hold.entered < before.entered);
            let what = if back { "fence going back" } else { "overlap" };
            problems.push(format!("{what}: {there:?} and {hold:?}"));
        }
        lasting.push(hold);
    }
    problems
}

/// The second law. Of all higher fences the one that entered first is enough.
fn asked_too_late(holds: &[&Hold]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut earliest: Option<&Hold> = None;
    for hold in holds.iter().rev() {
        if let Some(after) = earliest.filter(|after| after.entered < hold.asked) {
            problems.push(format!("fence going back: {after:?} before {hold:?} was asked for"));
        }
        if earliest.is_none_or(|after| hold.entered < after.entered) {
            earliest = Some(hold);
        }
    }
    problems
}

/// Who asked clearly later and was served earlier, which fences tell: of two who are served together any may be the first
/// to look.
pub(crate) fn inversions(holds: &[Hold]) -> Vec<(&Hold, &Hold)> {
    let clearly = u64::try_from(Duration::from_millis(200).as_nanos()).unwrap_or(u64::MAX);
    let mut holds: Vec<&Hold> = holds.iter().filter(|hold| hold.seen.is_some()).collect();
    holds.sort_by_key(|hold| hold.fence);
    let mut found = Vec::new();
    for (at, hold) in holds.iter().enumerate() {
        let before = holds[..at].iter().rev().take(32);
        let overtook = |other: &&&Hold| hold.in_line && hold.asked + clearly < other.asked;
        found.extend(before.filter(overtook).map(|other| (*hold, *other)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(fence: u64, asked: u64, entered: u64, seen: impl Into<Option<u64>>) -> Hold {
        Hold { worker: 1, fence, share: 1, asked, entered, seen: seen.into(), in_line: true }
    }

    fn problems(holds: &[Hold]) -> Vec<String> {
        problems_of(1, holds)
    }

    fn problems_of(whole: u64, holds: &[Hold]) -> Vec<String> {
        let found = broken(holds, whole);
        let backwards: Vec<Hold> = holds.iter().rev().cloned().collect();
        assert_eq!(broken(&backwards, whole), found, "the order in which they were told does not matter");
        found
    }

    #[test]
    fn as_many_as_there_are_places_hold_together_and_no_more() {
        let together = [hold(1, 0, 10, 20), hold(2, 0, 12, 30), hold(3, 0, 20, 40)];
        assert_eq!(problems_of(2, &together), [""; 0]);
        let found = problems_of(2, &[&together[..], &[hold(4, 0, 29, 29)]].concat());
        assert!(found.len() == 1 && found[0].starts_with("overlap"), "{found:?}");
    }

    #[test]
    fn one_who_takes_several_places_counts_as_several() {
        let several = |share, hold| Hold { share, ..hold };
        let (reader, writer) = (hold(1, 0, 10, 20), several(9, hold(2, 0, 20, 30)));
        assert_eq!(problems_of(9, &[reader.clone(), writer.clone(), hold(3, 0, 30, 40)]), [""; 0]);
        assert_eq!(problems_of(9, &[reader, writer.clone(), hold(3, 0, 29, 40)]).len(), 1);
        assert_eq!(problems_of(9, &[hold(1, 0, 10, 21), writer]).len(), 1);
    }

    /// Each has told late that it entered; what counts is the order of grants.
    #[test]
    fn places_are_counted_in_the_order_of_fences() {
        assert_eq!(problems_of(2, &[hold(1, 0, 30, 40), hold(2, 0, 10, 20), hold(3, 0, 25, 29)]), [""; 0]);
        let found = problems_of(2, &[hold(1, 0, 30, 40), hold(2, 0, 10, 26), hold(3, 0, 25, 29)]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn holds_one_after_the_other_are_fine() {
        assert_eq!(problems(&[]), [""; 0]);
        assert_eq!(problems(&[hold(1, 0, 10, 20), hold(2, 0, 21, 30), hold(7, 25, 31, 31)]), [""; 0]);
    }

    #[test]
    fn an_overlap_is_found_however_short_one_of_the_two_is() {
        for second in [hold(2, 0, 19, 30), hold(2, 0, 10, 10), hold(2, 15, 19, 19)] {
            let found = problems(&[hold(1, 0, 10, 20), second]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("overlap"), "{found:?}");
        }
    }

    #[test]
    fn everybody_who_comes_during_a_long_hold_is_found() {
        let found =
            problems(&[hold(1, 0, 10, 90), hold(2, 0, 19, 30), hold(3, 0, 31, 40), hold(4, 0, 91, 99)]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn an_overlap_is_found_behind_a_hold_that_is_excused() {
        let found = problems(&[hold(1, 0, 10, 50), hold(2, 0, 60, None), hold(3, 0, 40, 70)]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_fence_that_goes_back_or_stands_still_is_found() {
        let found = problems(&[hold(2, 0, 10, 20), hold(1, 0, 21, 30)]);
        assert!(found.len() == 1 && found[0].starts_with("fence going back"), "{found:?}");
        let found = problems(&[hold(2, 0, 10, 20), hold(2, 0, 21, 30)]);
        assert!(found.len() == 1 && found[0].starts_with("one fence twice"), "{found:?}");
    }

    #[test]
    fn a_guard_that_is_dead_when_it_is_first_looked_at_is_excused() {
        let (before, after) = (hold(2, 0, 15, 40), hold(3, 0, 41, 60));
        assert_eq!(problems(&[hold(1, 0, 30, None), before.clone(), after.clone()]), [""; 0]);
        assert_eq!(problems(&[hold(1, 0, 90, None), before.clone(), after.clone()]), [""; 0]);
        let found = problems(&[hold(1, 0, 30, 30), before, after]);
        assert_eq!(found.len(), 1, "what was looked at and held is not: {found:?}");
    }

    #[test]
    fn no_dead_guard_has_a_fence_from_the_midst_of_a_hold() {
        let found = problems(&[hold(1, 0, 10, 50), hold(2, 0, 30, None)]);
        assert!(found.len() == 1 && found[0].starts_with("overlap"), "{found:?}");
    }

    #[test]
    fn the_fences_of_dead_guards_are_judged_by_when_they_were_asked_for() {
        assert_eq!(problems(&[hold(1, 0, 50, None), hold(2, 0, 20, None)]), [""; 0]);
        let found = problems(&[hold(1, 21, 50, None), hold(2, 0, 20, None)]);
        assert!(found.len() == 1 && found[0].starts_with("fence going back"), "{found:?}");
        let found = problems(&[hold(1, 0, 50, None), hold(1, 0, 20, None)]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn who_is_served_clearly_out_of_turn_is_found() {
        let second = 1_000_000_000;
        let late = hold(1, second, 2 * second, 2 * second);
        let overtaken = hold(2, 0, 3 * second, 3 * second);
        assert_eq!(inversions(&[late.clone(), overtaken.clone()]).len(), 1);
        assert!(inversions(&[late.clone(), Hold { in_line: false, ..overtaken }]).is_empty());
        assert!(inversions(&[late, hold(2, second - 1, 3 * second, 3 * second)]).is_empty());
    }
}
