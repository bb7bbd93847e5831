//! Callers with different algorithms at the same time, as during the rollout of a new version.

use super::*;

const SIZE: u64 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// Returns when callers that do not wait are admitted, in microseconds since the start.
fn admissions_of(quotas: [Quota; 2], calls: impl Iterator<Item = (usize, u64)>) -> Vec<Option<(u64, u64)>> {
    let mut limiter = Bench::<State>::new();
    let start = limiter.now.as_micros();
    let mut admissions = Vec::new();
    for (number, (which, pause)) in calls.enumerate() {
        limiter.now = limiter.now + Duration::from_micros(pause);
        let reply = limiter.ask(&take(number as u128, 1, quotas[which], Duration::ZERO));
        let admission = (limiter.now.as_micros() - start, 1);
        admissions.push(matches!(reply, Reply::Admitted { .. }).then_some(admission));
    }
    admissions
}

#[test]
fn different_algorithms_do_not_starve_each_other() {
    for windows in [Quota::fixed_window, Quota::token_bucket] {
        let quotas = [windows(SIZE, SECOND), Quota::gcra(SIZE, SECOND)];
        let admissions = admissions_of(quotas, (0..2_000).map(|number| (number % 2, 5_000)));
        let admissions = admissions.iter().flatten().count();
        assert!((100..=120).contains(&admissions), "{admissions} in ten seconds");
    }
}

/// At least the stricter of the two limits is admitted.
#[test]
fn different_rates_do_not_starve_each_other() {
    for windows in [Quota::fixed_window, Quota::token_bucket] {
        let quotas = [windows(SIZE * 2, SECOND), Quota::gcra(SIZE, SECOND)];
        let admissions = admissions_of(quotas, (0..2_000).map(|number| (number % 2, 5_000)));
        let admissions = admissions.iter().flatten().count();
        assert!((100..=240).contains(&admissions), "{admissions} in ten seconds");
    }
}

proptest! {
    #[test]
    fn changing_algorithms_stay_within_the_bound(
        calls in prop::collection::vec((0..2_usize, 0..150_000_u64), 1..300),
        keeps_beat: bool,
        size in 1..SIZE,
    ) {
        let windows = if keeps_beat { Quota::token_bucket } else { Quota::fixed_window };
        for (windows, gcra) in [(SIZE, SIZE), (SIZE, size), (size, SIZE)].map(|(one, other)| {
            (windows(one, SECOND), Quota::gcra(other, SECOND))
        }) {
            let admissions = admissions_of([windows, gcra], calls.iter().copied());
            prop_assert!(densest(&admissions, 1_000_000) <= 2 * SIZE + 1);
        }
    }
}
