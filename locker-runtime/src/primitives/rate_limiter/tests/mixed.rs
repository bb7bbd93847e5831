//! Callers who count by different algorithms at the same time, as while a new version of a program takes the place of an
//! old one.

use super::*;

const SIZE: u64 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// When who does not wait is let through, in microseconds since the start.
fn let_through(quotas: [Quota; 2], calls: impl Iterator<Item = (usize, u64)>) -> Vec<Option<(u64, u64)>> {
    let mut limiter = Bench::<State>::new();
    let start = limiter.now.as_micros();
    let mut through = Vec::new();
    for (number, (which, pause)) in calls.enumerate() {
        limiter.now = limiter.now + Duration::from_micros(pause);
        let reply = limiter.ask(&take(number as u128, 1, quotas[which], Duration::ZERO));
        let turn = (limiter.now.as_micros() - start, 1);
        through.push(matches!(reply, Reply::Admitted { .. }).then_some(turn));
    }
    through
}

#[test]
fn callers_who_count_by_different_algorithms_do_not_starve_each_other() {
    for slots in [Quota::fixed_window, Quota::token_bucket] {
        let quotas = [slots(SIZE, SECOND), Quota::gcra(SIZE, SECOND)];
        let through = let_through(quotas, (0..2_000).map(|number| (number % 2, 5_000)));
        let through = through.iter().flatten().count();
        assert!((100..=120).contains(&through), "{through} in ten seconds");
    }
}

/// With the stricter limit of the two at least; what both of them refuse is used up at its own pace.
#[test]
fn callers_who_count_at_different_rates_do_not_starve_each_other() {
    for slots in [Quota::fixed_window, Quota::token_bucket] {
        let quotas = [slots(SIZE * 2, SECOND), Quota::gcra(SIZE, SECOND)];
        let through = let_through(quotas, (0..2_000).map(|number| (number % 2, 5_000)));
        let through = through.iter().flatten().count();
        assert!((100..=240).contains(&through), "{through} in ten seconds");
    }
}

proptest! {
    #[test]
    fn a_change_of_the_algorithm_lets_no_more_through_than_the_bound(
        calls in prop::collection::vec((0..2_usize, 0..150_000_u64), 1..300),
        beat: bool,
        size in 1..SIZE,
    ) {
        let slots = if beat { Quota::token_bucket } else { Quota::fixed_window };
        for (slots, gcra) in [(SIZE, SIZE), (SIZE, size), (size, SIZE)].map(|(one, other)| {
            (slots(one, SECOND), Quota::gcra(other, SECOND))
        }) {
            let through = let_through([slots, gcra], calls.iter().copied());
            prop_assert!(densest(&through, 1_000_000) <= 2 * SIZE + 1);
        }
    }
}
