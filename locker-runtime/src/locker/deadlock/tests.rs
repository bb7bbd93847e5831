//! Shapes of waits, and a comparison with all ways in which they can end.

use super::*;
use proptest::{collection::vec, prelude::*, sample::subsequence};

const TAG: u64 = 7;

pub(super) fn id(number: u64) -> Id {
    Id::from(u128::from(number))
}

pub(super) fn hold(key: &str, fence: u64) -> Around {
    Around { key: Key::new(key), fence, tag: TAG }
}

pub(super) fn wait(number: u64, key: &str, permits: u64, around: &[(&str, u64)]) -> Wait {
    let around = around.iter().map(|(key, fence)| hold(key, *fence)).collect();
    let (key, function, place) = (Key::new(key), String::new(), String::new());
    Wait { id: id(number), key, permits, fair: true, function, place, around }
}

fn queue(key: &str, size: u64, holders: &[(u64, u64)], waiters: &[u64]) -> (Key, Queue) {
    let holders = holders.iter().map(|(fence, permits)| (*fence, TAG, *permits)).collect();
    (Key::new(key), Queue { size, holders, waiters: waiters.iter().copied().map(id).collect() })
}

/// A lock with its fence, and those who wait for it.
fn locked(key: &str, fence: u64, waiters: &[u64]) -> (Key, Queue) {
    queue(key, 1, &[(fence, 1)], waiters)
}

fn picture<const W: usize, const Q: usize>(waits: [Wait; W], queues: [(Key, Queue); Q]) -> Picture {
    Picture { waits: waits.into_iter().map(|wait| (wait.id, wait)).collect(), queues: queues.into() }
}

/// The numbers of the stuck waits.
fn stuck(picture: &Picture) -> Vec<u64> {
    let stuck = picture.stuck();
    (0..10).filter(|number| stuck.has(id(*number))).collect()
}

/// The waits that fail, each with the numbers of its cycle.
fn broken(picture: &Picture) -> Vec<Vec<u64>> {
    let number = |wait: &Wait| u64::try_from(u128::from(wait.id)).unwrap();
    let cycles = picture.stuck().cycles_to_break();
    let mut numbers: Vec<Vec<u64>> =
        cycles.values().map(|cycle| cycle.iter().map(|wait| number(wait)).collect()).collect();
    numbers.sort_unstable();
    numbers
}

fn cycle_of_two() -> Picture {
    picture(
        [wait(1, "b", 1, &[("a", 10)]), wait(2, "a", 1, &[("b", 20)])],
        [locked("a", 10, &[2]), locked("b", 20, &[1])],
    )
}

#[test]
fn cycle_of_two_is_broken_once() {
    assert_eq!(broken(&cycle_of_two()), [[2, 1]]);
}

#[test]
fn cycle_of_three_is_broken_once() {
    let waits = [wait(3, "b", 1, &[("a", 10)]), wait(1, "c", 1, &[("b", 20)]), wait(2, "a", 1, &[("c", 30)])];
    let seen = picture(waits, [locked("a", 10, &[2]), locked("b", 20, &[3]), locked("c", 30, &[1])]);
    assert_eq!(broken(&seen), [[3, 1, 2]]);
}

#[test]
fn request_for_an_own_hold_is_a_cycle() {
    assert_eq!(broken(&picture([wait(1, "a", 1, &[("a", 10)])], [locked("a", 10, &[1])])), [[1]]);
}

/// The second reader would fit beside the first one, but the writer is served before it.
#[test]
fn writer_between_two_readers_is_on_the_cycle() {
    let waits = [wait(1, "rw", 9, &[]), wait(2, "rw", 1, &[("a", 10)]), wait(3, "a", 1, &[("rw", 20)])];
    let queues = [queue("rw", 9, &[(20, 1)], &[1, 2]), locked("a", 10, &[3])];
    let seen = picture(waits.clone(), queues.clone());
    assert_eq!((stuck(&seen), broken(&seen)), (vec![1, 2, 3], vec![vec![3, 2, 1]]));
    let mut writer_comes_later = queues.clone();
    writer_comes_later[0].1.waiters.reverse();
    assert!(stuck(&picture(waits.clone(), writer_comes_later)).is_empty());
    for (writer, reader, stuck_waits) in [(false, true, 3), (true, false, 3), (false, false, 0)] {
        let mut unfair = waits.clone();
        (unfair[0].fair, unfair[1].fair) = (writer, reader);
        assert_eq!(stuck(&picture(unfair, queues.clone())).len(), stuck_waits, "{writer} {reader}");
    }
}

/// The last one is served while the first one waits. Behind the second one it is stuck.
#[test]
fn unfair_wait_overtakes_beside_another_one() {
    let unfair = |wait| Wait { fair: false, ..wait };
    let waits = [wait(2, "s", 3, &[]), unfair(wait(3, "s", 1, &[("s", 10)]))];
    let queue_of = |waiters| queue("s", 3, &[(10, 1)], waiters);
    let [writer, last] = waits.clone();
    let seen = picture([unfair(wait(1, "s", 1, &[])), writer, last], [queue_of(&[1, 2, 3])]);
    assert!(stuck(&seen).is_empty());
    assert_eq!(stuck(&picture(waits.clone(), [queue_of(&[2, 3])])), [2, 3]);
    assert!(stuck(&picture(waits, [queue_of(&[9, 2, 3])])).is_empty(), "it may be unfair");
}

#[test]
fn two_readers_that_want_to_write_are_a_cycle() {
    let waits = [wait(1, "rw", 9, &[("rw", 10)]), wait(2, "rw", 9, &[("rw", 20)])];
    assert_eq!(broken(&picture(waits, [queue("rw", 9, &[(10, 1), (20, 1)], &[1, 2])])), [[2]]);
}

#[test]
fn chain_is_no_cycle() {
    let waits = [wait(1, "b", 1, &[("a", 10)]), wait(2, "c", 1, &[("b", 20)])];
    let seen = picture(waits, [locked("a", 10, &[]), locked("b", 20, &[1]), locked("c", 30, &[2])]);
    assert!(stuck(&seen).is_empty());
}

#[test]
fn diamond_is_no_cycle() {
    let waits = [
        wait(1, "b", 1, &[("a", 10)]),
        wait(2, "b", 1, &[("c", 30)]),
        wait(3, "d", 1, &[("b", 20)]),
        wait(4, "a", 1, &[]),
        wait(5, "c", 1, &[]),
    ];
    let queues =
        [locked("a", 10, &[4]), locked("b", 20, &[1, 2]), locked("c", 30, &[5]), locked("d", 40, &[3])];
    assert!(stuck(&picture(waits, queues)).is_empty());
}

/// A wait that leads into a cycle is stuck, but its end would help no other.
#[test]
fn tail_does_not_fail() {
    let Picture { mut waits, mut queues } = cycle_of_two();
    waits.insert(id(9), wait(9, "a", 1, &[("c", 30)]));
    waits.insert(id(8), wait(8, "c", 1, &[("d", 40)]));
    for (key, queue) in [locked("a", 10, &[9, 2]), locked("c", 30, &[8])] {
        queues.insert(key, queue);
    }
    let seen = Picture { waits, queues };
    assert_eq!((stuck(&seen), broken(&seen)), (vec![1, 2, 8, 9], vec![vec![2, 1]]));
}

#[test]
fn semaphore_with_one_free_holder_is_no_cycle() {
    let around = [wait(1, "a", 1, &[("s", 10)]), wait(2, "s", 1, &[("a", 30)])];
    let seen = picture(around.clone(), [queue("s", 2, &[(10, 1), (20, 1)], &[2]), locked("a", 30, &[1])]);
    assert!(stuck(&seen).is_empty());
    let [one, mut other] = around;
    other.permits = 2;
    let seen = picture([one, other], [queue("s", 2, &[(10, 1), (20, 1)], &[2]), locked("a", 30, &[1])]);
    assert_eq!(broken(&seen), [[2, 1]]);
}

#[test]
fn semaphore_of_size_zero_is_no_cycle() {
    let waits = [wait(1, "a", 1, &[("s", 10)]), wait(2, "s", 1, &[("a", 30)])];
    let seen = picture(waits, [queue("s", 0, &[(10, 1)], &[2]), locked("a", 30, &[1])]);
    assert!(stuck(&seen).is_empty());
}

/// The search takes as many steps as there are waits and edges: it runs beside the renewals.
#[test]
fn pool_of_a_thousand_permits_is_one_set() {
    let (permits, locks) = (1_000, 10);
    let waits_at = |number| format!("lock {}", number % locks);
    let holders = (0..permits).map(|number| wait(number, &waits_at(number), 1, &[("pool", number)]));
    let others = (0..locks).map(|lock| wait(permits + lock, "pool", 1, &[(&waits_at(lock), 1)]));
    let waits = holders.chain(others).map(|wait| (wait.id, wait)).collect();
    let held: Vec<_> = (0..permits).map(|fence| (fence, 1)).collect();
    let of_lock = |lock| {
        let waiters: Vec<_> = (0..permits).filter(|number| number % locks == lock).collect();
        locked(&waits_at(lock), 1, &waiters)
    };
    let pool = queue("pool", permits, &held, &(permits..permits + locks).collect::<Vec<_>>());
    let seen = Picture { waits, queues: (0..locks).map(of_lock).chain([pool]).collect() };
    let cycles = broken(&seen);
    assert!(cycles.len() == 1 && cycles[0][0] == permits + locks - 1, "{cycles:?}");
}

/// Each queue can move on once the last waiter of the one before it has ended. A look takes few steps nevertheless.
#[test]
fn chain_of_full_queues_is_no_cycle() {
    let (keys, waiters) = (64, 100);
    let numbers = |key: u64| (key * waiters..(key + 1) * waiters).collect::<Vec<_>>();
    let key = |key: u64| format!("lock {key}");
    let of = |at: u64| {
        let holds_next = move |number| (number % waiters == waiters - 1).then(|| (key(at + 1), 1));
        let wait = move |number| {
            let next = holds_next(number);
            let around: Vec<_> = next.iter().map(|(key, fence)| (key.as_str(), *fence)).collect();
            wait(number, &key(at), 1, &around)
        };
        numbers(at).into_iter().map(wait)
    };
    let waits = (0..keys).flat_map(of).map(|wait| (wait.id, wait)).collect();
    let seen = Picture { waits, queues: (0..keys).map(|at| locked(&key(at), 1, &numbers(at))).collect() };
    assert!(seen.stuck().keys().is_empty());
}

#[test]
fn converging_waits_are_no_cycle() {
    let waits = [wait(1, "c", 1, &[("a", 10)]), wait(2, "c", 1, &[("b", 20)]), wait(3, "c", 1, &[])];
    let seen = picture(waits, [locked("a", 10, &[]), locked("b", 20, &[]), locked("c", 30, &[1, 2, 3])]);
    assert!(stuck(&seen).is_empty());
}

#[test]
fn hold_around_two_waits_ends_with_the_last() {
    let waits = [wait(1, "b", 1, &[("a", 10)]), wait(2, "c", 1, &[("a", 10)]), wait(3, "a", 1, &[("b", 20)])];
    let queues = [locked("a", 10, &[3]), locked("b", 20, &[1]), locked("c", 30, &[2])];
    assert_eq!(broken(&picture(waits, queues)), [[3, 1]]);
}

/// Another program holds with the fence of the hold before it.
#[test]
fn hold_of_another_program_is_no_edge() {
    let Picture { waits, mut queues } = cycle_of_two();
    queues.get_mut(&Key::new("a")).unwrap().holders[0].1 = TAG + 1;
    assert!(stuck(&Picture { waits, queues }).is_empty());
}

#[test]
fn two_looks_share_what_stays() {
    let unchanged = cycle_of_two();
    let both = cycle_of_two().also_in(&unchanged.queues);
    assert_eq!(broken(&both), [[2, 1]]);
    for change in [
        locked("a", 11, &[2]),
        locked("a", 10, &[]),
        queue("a", 2, &[(10, 1)], &[2]),
        queue("a", 1, &[], &[2]),
    ] {
        let mut later = unchanged.queues.clone();
        later.insert(change.0, change.1);
        assert!(stuck(&cycle_of_two().also_in(&later)).is_empty());
    }
    assert!(stuck(&cycle_of_two().also_in(&HashMap::new())).is_empty());
}

#[test]
fn waiters_that_change_places_were_away() {
    let before = queue("a", 1, &[], &[1, 2, 3]).1;
    assert_eq!(before.also_in(&queue("a", 1, &[], &[2, 3, 4]).1).waiters, [id(2), id(3)]);
    assert!(before.also_in(&queue("a", 1, &[], &[3, 2]).1).waiters.is_empty());
}

/// Holds and waits, by numbers. A hold has a key, permits, and waits that keep it.
#[derive(Clone, Debug)]
struct Drawn {
    sizes: Vec<u64>,
    holds: Vec<(usize, u64, Vec<usize>)>,
    /// Key, permits, whether it is fair, whether it is in the queue.
    waits: Vec<(usize, u64, bool, bool)>,
    order: Vec<usize>,
}

const KEYS: [&str; 3] = ["a", "b", "c"];

fn drawn() -> impl Strategy<Value = Drawn> {
    let waits =
        vec((0..3_usize, 1..4_u64, proptest::bool::weighted(0.8), proptest::bool::weighted(0.9)), 1..6);
    (vec(0..4_u64, 3), waits).prop_flat_map(|(sizes, waits)| {
        let all: Vec<usize> = (0..waits.len()).collect();
        let keepers = subsequence(all.clone(), 0..=waits.len().min(2));
        let holds = vec((0..3_usize, 1..3_u64, keepers), 0..6);
        (holds, Just(all).prop_shuffle()).prop_map(move |(holds, order)| Drawn {
            sizes: sizes.clone(),
            holds,
            waits: waits.clone(),
            order,
        })
    })
}

/// The waits and the holds that have not ended, as sets of bits.
type Left = (u32, u32);

impl Drawn {
    fn all(&self) -> Left {
        ((1 << self.waits.len()) - 1, (1 << self.holds.len()) - 1)
    }

    fn picture(&self, (waits, holds): Left) -> Picture {
        let mut seen = Picture::default();
        let is_left = |at: &usize| holds & 1 << at != 0;
        for (number, (key, permits, fair, _)) in self.waits.iter().enumerate() {
            if waits & 1 << number == 0 {
                continue;
            }
            let kept = |(fence, (key, _, by)): (usize, &(usize, u64, Vec<usize>))| {
                (is_left(&fence) && by.contains(&number)).then(|| hold(KEYS[*key], fence as u64))
            };
            let around = self.holds.iter().enumerate().filter_map(kept).collect();
            let wait = Wait { fair: *fair, around, ..wait(number as u64, KEYS[*key], *permits, &[]) };
            seen.waits.insert(wait.id, wait);
        }
        for (at, key) in KEYS.iter().enumerate() {
            let here = self.holds.iter().enumerate().filter(|(fence, hold)| hold.0 == at && is_left(fence));
            let holders: Vec<_> = here.map(|(fence, hold)| (fence as u64, hold.1)).collect();
            let here = |number: &&usize| {
                let (key, _, _, is_queued) = self.waits[**number];
                key == at && is_queued && waits & 1 << **number != 0
            };
            let waiters: Vec<_> = self.order.iter().filter(here).map(|number| *number as u64).collect();
            seen.queues.extend([queue(key, self.sizes[at], &holders, &waiters)]);
        }
        seen
    }

    /// Whether a wait can end now, while these waits and holds have not.
    fn fits(&self, number: usize, (waits, holds): Left) -> bool {
        let (key, permits, fair, is_queued) = self.waits[number];
        if !is_queued || self.sizes[key] == 0 || permits > self.sizes[key] {
            return true;
        }
        let held = self.holds.iter().enumerate().filter(|(at, hold)| hold.0 == key && holds & 1 << at != 0);
        let taken: u64 = held.map(|(_, hold)| hold.1).sum();
        let is_ahead = |other: &&usize| {
            let (at, _, _, is_queued) = self.waits[**other];
            at == key && is_queued && waits & 1 << **other != 0
        };
        let first = self.order.iter().take_while(|other| **other != number).find(is_ahead);
        let is_served = first.is_none_or(|first| !fair && !self.waits[*first].2);
        (taken == 0 || taken + permits <= self.sizes[key]) && is_served
    }

    /// Returns what is left after each wait or hold that can end now.
    fn next(&self, (waits, holds): Left) -> Vec<Left> {
        let ends = (0..self.waits.len()).filter(|at| waits & 1 << at != 0 && self.fits(*at, (waits, holds)));
        let after_waits = ends.map(|at| (waits & !(1 << at), holds));
        let is_kept = |at: usize| self.holds[at].2.iter().any(|keeper| waits & 1 << keeper != 0);
        let over = (0..self.holds.len()).filter(|at| holds & 1 << at != 0 && !is_kept(*at));
        after_waits.chain(over.map(|at| (waits, holds & !(1 << at)))).collect()
    }

    /// Tries all orders in which holds and waits end. Returns the waits that end in none.
    fn never_end(&self) -> Vec<u64> {
        let (mut seen, mut next) = (HashSet::from([self.all()]), vec![self.all()]);
        let mut never = u32::MAX;
        while let Some(left) = next.pop() {
            never &= left.0;
            next.extend(self.next(left).into_iter().filter(|left| seen.insert(*left)));
        }
        self.numbers(never)
    }

    fn numbers(&self, waits: u32) -> Vec<u64> {
        (0..self.waits.len()).filter(|at| waits & 1 << at != 0).map(|at| at as u64).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn stuck_are_those_that_end_in_no_order(drawn in drawn()) {
        let (stuck, never_end) = (stuck(&drawn.picture(drawn.all())), drawn.never_end());
        prop_assert!(stuck.iter().all(|wait| never_end.contains(wait)), "{stuck:?} of {never_end:?}");
        // The end of an unfair one may block another one. So only without them all are known at once.
        if drawn.waits.iter().all(|(_, _, fair, _)| *fair) {
            prop_assert_eq!(stuck, never_end);
        }
    }

    #[test]
    fn all_are_stuck_when_none_can_end(drawn in drawn(), order in any::<u64>()) {
        let (mut left, mut rng) = (drawn.all(), fastrand::Rng::with_seed(order));
        while let Some(next) = rng.choice(drawn.next(left)) {
            left = next;
        }
        prop_assert_eq!(stuck(&drawn.picture(left)), drawn.numbers(left.0));
    }

    /// If anything is stuck, a wait fails; the waits on its cycle are stuck.
    #[test]
    fn each_deadlock_is_broken(drawn in drawn()) {
        let seen = drawn.picture(drawn.all());
        let (stuck, broken) = (stuck(&seen), broken(&seen));
        prop_assert_eq!(stuck.is_empty(), broken.is_empty());
        prop_assert!(broken.iter().flatten().all(|number| stuck.contains(number)));
    }
}
