//! More who wait than can be served, and who give up when their patience is over.

use super::*;

const LIMIT: u64 = 10;
const SECOND: u64 = 1_000_000;

/// How many are let through in half a minute where 200 come every second who wait for one.
fn let_through(quota: Quota) -> usize {
    let mut limiter = Bench::<State>::new();
    let start = limiter.now.as_micros();
    // Who waits: number, end of its patience, its turn.
    let (mut waiting, mut through) = (Vec::<(u128, u64, u64)>::new(), 0);
    for number in 0..30 * 200_u128 {
        limiter.now =
            Timestamp::from_micros(start) + Duration::from_millis(5) * u32::try_from(number).unwrap();
        let now = limiter.now.as_micros();
        waiting.retain(|(_, _, turn)| {
            through += usize::from(*turn <= now);
            *turn > now
        });
        let gone = waiting.extract_if(.., |(_, end, _)| *end <= now);
        for (gone, ..) in gone.collect::<Vec<_>>() {
            limiter.ask(&Request::Cancel { id: Id::from(gone), tombstone: false });
        }
        waiting.push((number, now + SECOND, u64::MAX));
        let mut asking = vec![Id::from(number)];
        while let Some(id) = asking.pop() {
            if let Some(at) = waiting.iter().position(|(number, ..)| Id::from(*number) == id) {
                let reply = limiter.ask(&take(waiting[at].0, 1, quota, Duration::MAX));
                let Reply::Admitted { wait, .. } = reply else { panic!("{reply:?}") };
                waiting[at].2 = (limiter.now + wait).as_micros();
            }
            asking.extend(limiter.pushed());
        }
    }
    through
}

#[test]
fn a_long_line_of_impatient_callers_uses_what_the_limit_allows() {
    let second = Duration::from_secs(1);
    for quota in [Quota::fixed_window, Quota::token_bucket, Quota::gcra].map(|kind| kind(LIMIT, second)) {
        let through = let_through(quota);
        assert!((290..=310).contains(&through), "{quota:?}: {through} instead of 300");
    }
}
