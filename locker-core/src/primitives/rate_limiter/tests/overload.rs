//! More waiting callers than can be served, which give up when their patience ends.

use super::*;

const LIMIT: u64 = 10;
const SECOND: u64 = 1_000_000;

/// Returns the number of admissions in half a minute in which 200 callers a second come and wait for one second.
fn admitted_in_half_a_minute(quota: Quota) -> usize {
    let mut limiter = Bench::<State>::new();
    let start = limiter.now.as_micros();
    // The waiting callers: number, end of the patience, time of the reservation.
    let (mut waiting, mut admitted) = (Vec::<(u128, u64, u64)>::new(), 0);
    for number in 0..30 * 200_u128 {
        limiter.now =
            Timestamp::from_micros(start) + Duration::from_millis(5) * u32::try_from(number).unwrap();
        let now = limiter.now.as_micros();
        waiting.retain(|(_, _, due)| {
            admitted += usize::from(*due <= now);
            *due > now
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
            asking.extend(limiter.notified());
        }
    }
    admitted
}

#[test]
fn impatient_callers_use_the_whole_limit() {
    let second = Duration::from_secs(1);
    for quota in [Quota::fixed_window, Quota::token_bucket, Quota::gcra].map(|kind| kind(LIMIT, second)) {
        let admitted = admitted_in_half_a_minute(quota);
        assert!((290..=310).contains(&admitted), "{quota:?}: {admitted} instead of 300");
    }
}

/// The embedded store does not remember the callers that it moved up or refused: its replies cannot be lost.
#[test]
fn notified_callers_are_forgotten() {
    let (second, window) = (Duration::from_secs(1), |per| Quota::fixed_window(1, per));
    let mut limiter = Bench::<State>::new();
    for (id, patience) in [(0, second), (1, second), (2, second * 3), (3, second * 2)] {
        limiter.ask(&take(id, 1, window(second / 2), patience));
    }
    limiter.ask(&Request::Cancel { id: Id::from(1), tombstone: false });
    limiter.ask(&take(4, 1, window(second * 3), Duration::ZERO));
    limiter.notified();
    limiter.pass(3_000);
    let (admitted, refused) =
        (limiter.ask(&take(2, 1, window(second), second)), limiter.ask(&take(3, 1, window(second), second)));
    assert!(matches!(admitted, Reply::Admitted { wait: Duration::ZERO, .. }), "{admitted:?}");
    assert!(matches!(refused, Reply::Limited { .. }), "{refused:?}");
    limiter.pass(10_000);
    limiter.tick();
    assert!(limiter.state.is_idle());
}

/// A caller that knows its time does not ask again, so its silence means nothing.
#[test]
fn reservations_outlive_the_silence_of_their_callers() {
    let (minute, away) =
        (Duration::from_secs(60), Some(Wait { live: Some(Duration::from_secs(30)), fair: true }));
    let quota = Quota::fixed_window(1, minute);
    let mut limiter = Bench::<State>::new();
    let ask = |id| Request::Take { id: Id::from(id), tokens: 1, quota, patience: Duration::MAX, wait: away };
    for (id, due) in [(1, Duration::ZERO), (2, minute), (3, 2 * minute)] {
        assert!(matches!(limiter.ask(&ask(id)), Reply::Admitted { wait, .. } if wait == due));
    }
    limiter.pass(40_000);
    limiter.ask(&Request::Cancel { id: Id::from(2), tombstone: false });
    assert_eq!(limiter.notified(), [Id::from(3)]);
    let moved = limiter.ask(&ask(3));
    assert!(matches!(moved, Reply::Admitted { wait, .. } if wait == Duration::from_secs(20)), "{moved:?}");
}
