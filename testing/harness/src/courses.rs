//! All courses of a model.

use std::{
    collections::{HashSet, VecDeque},
    env,
    hash::{BuildHasher, Hash, RandomState},
};

/// Explores all states that follow `first`, the nearest first. Returns their number, or the first that is `wrong`.
///
/// # Errors
/// What is wrong with which state.
pub fn explore<S: Hash, W>(
    first: S,
    next: impl Fn(&S) -> Vec<S>,
    wrong: impl Fn(&S) -> Option<W>,
) -> Result<usize, (W, S)> {
    let hasher = RandomState::new();
    let (mut seen, mut queue) = (HashSet::from([hasher.hash_one(&first)]), VecDeque::from([first]));
    while let Some(state) = queue.pop_front() {
        if let Some(wrong) = wrong(&state) {
            return Err((wrong, state));
        }
        queue.extend(next(&state).into_iter().filter(|state| seen.insert(hasher.hash_one(state))));
    }
    Ok(seen.len())
}

/// Replaces numbers by their places among those that differ, from 1 on: courses meet that differ only in them.
///
/// # Panics
/// If more than 255 differ.
pub fn rename<'a>(numbers: impl IntoIterator<Item = &'a mut u8>) {
    let mut known = Vec::new();
    for number in numbers {
        let place = known.iter().position(|other| other == number).unwrap_or_else(|| {
            known.push(*number);
            known.len() - 1
        });
        *number = u8::try_from(place + 1).expect("few numbers");
    }
}

/// Returns the lowest number from 1 on that is not used.
///
/// # Panics
/// If all are used.
#[must_use]
pub fn free_number(used: impl IntoIterator<Item = u8>) -> u8 {
    let used: HashSet<u8> = used.into_iter().collect();
    (1..=u8::MAX).find(|number| !used.contains(number)).expect("a free number")
}

/// Returns whether the environment asks for more processes and faults than a test has time for: `LOCKER_MODEL=full`.
#[must_use]
pub fn explores_more() -> bool {
    env::var("LOCKER_MODEL").is_ok_and(|value| value == "full")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each state is seen once, and the nearest that is wrong is found.
    #[test]
    fn nearest_wrong_state_is_found() {
        let next = |state: &u32| vec![state * 2 % 7, state * 2 % 7, (state + 1) % 7];
        let wrong = |most: u32| move |state: &u32| (*state > most).then_some("much");
        assert_eq!(explore(1, next, wrong(6)), Ok(7));
        assert_eq!(explore(1, next, wrong(3)), Err(("much", 4)));
        assert_eq!(explore(1, next, wrong(4)), Err(("much", 5)));
    }

    #[test]
    fn numbers_are_named_by_their_places() {
        let mut numbers = [7, 3, 7, 9];
        rename(&mut numbers);
        assert_eq!(numbers, [1, 2, 1, 3]);
        assert_eq!(free_number(numbers), 4);
    }
}
