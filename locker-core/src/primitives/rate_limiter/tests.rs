//! The limiter against models that are too simple to be wrong, and the bounds in the documentation.

mod mixed;
mod overload;
mod settings;

use super::*;
use crate::primitives::{
    state::State as _,
    tests::bench::{Bench, HERE},
};
use proptest::prelude::*;

const INTERVAL: u64 = 100_000;

fn take(id: u128, tokens: u64, quota: Quota, patience: Duration) -> Request {
    Request::Take { id: Id::from(id), tokens, quota, patience, wait: HERE }
}

/// Returns when the tokens were admitted, in microseconds since the start. Returns `None` for a refused call.
fn admissions(quota: Quota, calls: &[(u64, u64, u64)]) -> Vec<Option<(u64, u64)>> {
    let mut limiter = Bench::<State>::new();
    let start = limiter.now.as_micros();
    let mut admissions = Vec::new();
    for (number, &(pause, tokens, patience)) in calls.iter().enumerate() {
        limiter.now = limiter.now + Duration::from_micros(pause);
        let request = take(number as u128, tokens, quota, Duration::from_micros(patience));
        admissions.push(match limiter.ask(&request) {
            Reply::Admitted { wait, .. } => Some(((limiter.now + wait).as_micros() - start, tokens)),
            Reply::Limited { retry_after: Some(after), .. } => {
                assert!(after.as_micros() > u128::from(patience), "refused although the patience suffices");
                None
            }
            reply => panic!("{reply:?}"),
        });
    }
    admissions
}

/// The simplest windows: a list with the start of each and the tokens that it admitted.
struct Windows {
    keeps_beat: bool,
    size: u64,
    list: Vec<(u64, u64)>,
}

impl Windows {
    /// Returns when the next tokens are admitted, and whether that begins a new window.
    fn available_at(&self, tokens: u64, now: u64) -> (u64, bool) {
        let Some(&(start, used)) = self.list.last() else { return (now, true) };
        if now < start + INTERVAL {
            return if used + tokens <= self.size {
                (start.max(now), false)
            } else {
                (start + INTERVAL, true)
            };
        }
        (now, true)
    }

    fn call(&mut self, tokens: u64, now: u64, patience: u64) -> Option<(u64, u64)> {
        let (at, is_new) = self.available_at(tokens, now);
        if at > now + patience {
            return None;
        }
        if is_new {
            let beat = self.list.last().map(|(start, _)| start + INTERVAL).filter(|_| self.keeps_beat);
            let start = beat.filter(|beat| at >= *beat && at < beat + INTERVAL).unwrap_or(at);
            self.list.push((start, 0));
        }
        if let Some((_, used)) = self.list.last_mut() {
            *used += tokens;
        }
        Some((at, tokens))
    }
}

fn calls() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let pause = prop_oneof![3 => Just(0), 3 => 0..INTERVAL / 2, 1 => 0..INTERVAL * 3];
    prop::collection::vec((pause, 1..4_u64, prop_oneof![Just(0), 0..INTERVAL * 5]), 1..120)
}

/// Returns the greatest number of tokens admitted in any time of this length.
fn densest(admissions: &[Option<(u64, u64)>], length: u64) -> u64 {
    let mut times: Vec<_> = admissions.iter().flatten().copied().collect();
    times.sort_unstable();
    let from = |start: u64| times.iter().filter(move |(at, _)| *at >= start && *at < start + length);
    times.iter().map(|(start, _)| from(*start).map(|(_, tokens)| tokens).sum()).max().unwrap_or(0)
}

/// Returns the reply without the number of waiting callers, which is bookkeeping: a cancellation reschedules the other
/// reservations, which may then be a microsecond earlier.
fn tokens_of(reply: Reply) -> Reply {
    match reply {
        Reply::Limited { retry_after, remaining, reset_after, .. } => {
            Reply::Limited { retry_after, remaining, reset_after, waiting: 0 }
        }
        reply => reply,
    }
}

#[test]
fn replies_tell_how_many_tokens_are_free() {
    let interval = Duration::from_micros(INTERVAL);
    for quota in
        [Quota::gcra(5, interval), Quota::token_bucket(5, interval), Quota::fixed_window(5, interval)]
    {
        let mut limiter = Bench::<State>::new();
        let left = |limiter: &mut Bench<State>, id, tokens| match limiter.ask(&take(
            id,
            tokens,
            quota,
            Duration::ZERO,
        )) {
            Reply::Admitted { remaining, .. } => (true, remaining),
            Reply::Limited { remaining, .. } => (false, remaining),
            reply => panic!("{reply:?}"),
        };
        assert_eq!(left(&mut limiter, 1, 2), (true, 3), "{quota:?}");
        assert_eq!(left(&mut limiter, 2, 4), (false, 3), "{quota:?}: a refusal takes nothing");
        assert_eq!(left(&mut limiter, 3, 3), (true, 0), "{quota:?}");
        let later = limiter.ask(&take(4, 2, quota, interval));
        assert!(matches!(later, Reply::Admitted { wait, .. } if !wait.is_zero()), "{quota:?}: {later:?}");
        assert_eq!(left(&mut limiter, 5, 4), (false, 0), "{quota:?}: what comes later is not free");
    }
}

#[test]
fn caller_that_asks_again_keeps_its_reservation_if_it_still_waits_that_long() {
    let mut limiter = Bench::<State>::new();
    let interval = Duration::from_micros(INTERVAL);
    let quota = Quota::token_bucket(1, interval);
    let mut ask = |id, patience| limiter.ask(&take(id, 1, quota, patience));
    assert!(matches!(ask(1, Duration::ZERO), Reply::Admitted { wait: Duration::ZERO, .. }));
    for _ in 0..2 {
        // As of its admission.
        let in_turn = Reply::Admitted { wait: interval, remaining: 0, reset_after: interval };
        assert_eq!(ask(2, interval), in_turn);
    }
    assert!(matches!(ask(2, interval / 2), Reply::Limited { waiting: 0, .. }));
    assert!(matches!(ask(3, interval), Reply::Admitted { wait, .. } if wait == interval), "it was given up");
}

#[test]
fn caller_whose_turn_is_put_off_beyond_its_patience_is_refused() {
    let interval = Duration::from_micros(INTERVAL);
    let quota = |size, intervals| Quota::token_bucket(size, intervals * interval);
    for (other, is_refused) in [(quota(1, 3), true), (quota(0, 1), false)] {
        let mut limiter = Bench::<State>::new();
        limiter.ask(&take(1, 1, quota(1, 1), Duration::ZERO));
        let mut ask = |id, patience, quota| limiter.ask(&take(id, 1, quota, patience));
        assert!(matches!(ask(2, interval, quota(1, 1)), Reply::Admitted { .. }));
        ask(3, Duration::ZERO, other);
        match ask(2, interval, other) {
            Reply::Limited { .. } => assert!(is_refused),
            Reply::Queued { ahead: 0, .. } => assert!(!is_refused, "it waits for a greater size"),
            reply => panic!("{reply:?}"),
        }
    }
}

/// A waiting caller of the store's own process asks only once: the store wakes it.
#[test]
fn callers_of_this_process_wait_for_a_greater_size_however_long() {
    let mut limiter = Bench::<State>::new();
    let quota = Quota::token_bucket(0, Duration::from_micros(INTERVAL));
    for id in [1, 2] {
        limiter.ask(&take(id, 1, quota, Duration::MAX));
    }
    limiter.advance(Duration::from_hours(10));
    let again = limiter.ask(&take(2, 1, quota, Duration::MAX));
    assert!(matches!(again, Reply::Queued { ahead: 1, .. }), "{again:?}");
}

proptest! {
    #[test]
    fn windows_and_buckets_agree_with_a_list(calls in calls(), size in 3..8_u64, keeps_beat: bool) {
        let per = Duration::from_micros(INTERVAL);
        let quota = if keeps_beat { Quota::token_bucket(size, per) } else { Quota::fixed_window(size, per) };
        let (mut model, mut now) = (Windows { keeps_beat, size, list: Vec::new() }, 0);
        let expected: Vec<_> = calls.iter().map(|&(pause, tokens, patience)| {
            now += pause;
            model.call(tokens, now, patience)
        }).collect();
        prop_assert_eq!(admissions(quota, &calls), expected);
    }

    #[test]
    fn no_interval_admits_more_than_twice_the_size(calls in calls(), size in 3..8_u64, keeps_beat: bool) {
        let per = Duration::from_micros(INTERVAL);
        let quota = if keeps_beat { Quota::token_bucket(size, per) } else { Quota::fixed_window(size, per) };
        prop_assert!(densest(&admissions(quota, &calls), INTERVAL) <= 2 * size);
    }

    #[test]
    fn gcra_keeps_its_burst_and_its_rate(calls in calls(), size in 1..20_u64, burst in 3..8_u64, times in 1..6_u64) {
        let quota = Quota::gcra(size, Duration::from_micros(INTERVAL)).burst(burst);
        let admissions = admissions(quota, &calls);
        // One more token, since times are rounded up to a microsecond.
        prop_assert!(densest(&admissions, INTERVAL * times) <= burst + size * times + 1);
        prop_assert!(densest(&admissions, 1) <= burst);
    }

    #[test]
    fn reservations_keep_the_order_of_requests(calls in calls(), which in 0..3_usize) {
        let per = Duration::from_micros(INTERVAL);
        let quota = [Quota::fixed_window(3, per), Quota::token_bucket(3, per), Quota::gcra(5, per).burst(3)][which];
        prop_assert!(admissions(quota, &calls).iter().flatten().is_sorted_by_key(|(at, _)| *at));
    }

    /// Later callers get the same replies as if it had never asked.
    #[test]
    fn cancelled_reservation_takes_nothing(calls in calls(), which in 0..3_usize) {
        let per = Duration::from_micros(INTERVAL);
        let quota = [Quota::fixed_window(3, per), Quota::token_bucket(3, per), Quota::gcra(5, per).burst(3)][which];
        let (mut with, mut without) = (Bench::<State>::new(), Bench::<State>::new());
        for (number, (pause, tokens, patience)) in calls.into_iter().enumerate() {
            with.now = with.now + Duration::from_micros(pause);
            without.now = with.now;
            let patience = Duration::from_micros(patience);
            let gone = with.ask(&take(1000 + number as u128, tokens, quota, Duration::MAX));
            if matches!(gone, Reply::Admitted { wait, .. } if wait.is_zero()) {
                without.ask(&take(1000 + number as u128, tokens, quota, Duration::MAX));
            }
            with.ask(&Request::Cancel { id: Id::from(1000 + number as u128), tombstone: false });
            let request = take(number as u128, tokens, quota, patience);
            prop_assert_eq!(tokens_of(with.ask(&request)), tokens_of(without.ask(&request)));
        }
    }

    /// A copy gets the same reservation, takes nothing and changes no settings.
    #[test]
    fn repeated_request_changes_nothing(tokens in prop::collection::vec(1..4_u64, 4..40)) {
        let quota = Quota::token_bucket(3, Duration::from_micros(INTERVAL));
        let mut limiter = Bench::<State>::new();
        let mut assigned = Vec::new();
        for (number, tokens) in tokens.iter().enumerate() {
            let reply = limiter.ask(&take(number as u128, *tokens, quota, Duration::MAX));
            let Reply::Admitted { wait, .. } = reply else { panic!("{reply:?}") };
            assigned.push(wait);
        }
        for (number, assigned) in assigned.iter().enumerate().filter(|(_, wait)| !wait.is_zero()) {
            let again = limiter.ask(&take(number as u128, 1, Quota::gcra(9, Duration::from_secs(1)), Duration::MAX));
            let Reply::Admitted { wait, .. } = again else { panic!("{again:?}") };
            prop_assert_eq!(wait, *assigned);
        }
        prop_assert!(limiter.notified().is_empty());
    }
}

/// Callers with their admissions: the time and the tokens, unless the caller left before.
struct Callers {
    limiter: Bench<State>,
    quota: Quota,
    admissions: Vec<Option<(u64, u64)>>,
}

impl Callers {
    /// Returns `number` callers that ask at the same time, each for one token.
    fn of(number: u64, quota: Quota) -> Self {
        let mut callers = Self { limiter: Bench::new(), quota, admissions: Vec::new() };
        (0..number).for_each(|_| callers.join(1));
        callers
    }

    fn ask(&mut self, number: usize, tokens: u64) -> (u64, u64) {
        let reply = self.limiter.ask(&take(number as u128, tokens, self.quota, Duration::MAX));
        let Reply::Admitted { wait, .. } = reply else { panic!("{reply:?}") };
        ((self.limiter.now + wait).as_micros(), tokens)
    }

    fn join(&mut self, tokens: u64) {
        let admission = self.ask(self.admissions.len(), tokens);
        self.admissions.push(Some(admission));
    }

    /// A caller that was admitted has nothing to give back.
    fn leave(&mut self, number: usize) {
        self.limiter.ask(&Request::Cancel { id: Id::from(number as u128), tombstone: false });
        let now = self.limiter.now.as_micros();
        self.admissions[number] = self.admissions[number].filter(|(at, _)| *at <= now);
    }

    /// The woken callers ask again, and none is put off.
    fn move_up(&mut self) {
        for id in self.limiter.notified() {
            let number = (0..self.admissions.len()).find(|number| Id::from(*number as u128) == id).unwrap();
            let (assigned, tokens) = self.admissions[number].unwrap();
            let admission = self.ask(number, tokens);
            assert!(admission.0 <= assigned, "a cancellation put {number} off");
            self.admissions[number] = Some(admission);
        }
    }
}

proptest! {
    #[test]
    fn cancellations_never_admit_more_than_the_bound(
        acts in prop::collection::vec((0..8_u8, 1..4_u64, 0..300_usize, 0..INTERVAL), 0..300),
        which in 0..3_usize,
    ) {
        let per = Duration::from_micros(INTERVAL);
        let quota = [Quota::fixed_window(3, per), Quota::token_bucket(3, per), Quota::gcra(5, per).burst(3)][which];
        let mut callers = Callers::of(100, quota);
        for (act, tokens, index, pause) in acts {
            match act {
                0..=3 => callers.leave(index % callers.admissions.len()),
                4..=6 => callers.join(tokens),
                _ => callers.limiter.now = callers.limiter.now + Duration::from_micros(pause),
            }
            callers.move_up();
        }
        let bound = if which == 2 { 3 + 5 + 1 } else { 6 };
        prop_assert!(densest(&callers.admissions, INTERVAL) <= bound);
    }
}

#[test]
fn long_queue_does_not_move_up() {
    let per = Duration::from_micros(INTERVAL);
    for quota in [Quota::fixed_window(1, per), Quota::token_bucket(1, per), Quota::gcra(1, per)] {
        let mut callers = Callers::of(101, quota);
        let assigned = callers.admissions[100];
        (1..=35).for_each(|number| callers.leave(number));
        assert_eq!(callers.limiter.notified(), [], "{quota:?}");
        assert_eq!(callers.ask(100, 1), assigned.unwrap(), "{quota:?}");
        callers.leave(36);
        assert_eq!(callers.limiter.notified().len(), MOVES_UP, "{quota:?}");
        assert_eq!(callers.ask(100, 1).0, assigned.unwrap().0 - 36 * INTERVAL, "{quota:?}");
    }
}

/// Also in a long queue: cancelled reservations do not count once they were due.
#[test]
fn cancelled_tokens_are_free_again() {
    let per = Duration::from_micros(INTERVAL);
    for quota in [Quota::fixed_window(1, per), Quota::token_bucket(1, per), Quota::gcra(1, per)] {
        let mut callers = Callers::of(101, quota);
        (2..=36).for_each(|number| callers.leave(number));
        (38..=100).rev().for_each(|number| callers.leave(number));
        callers.leave(37);
        callers.limiter.pass(100);
        assert_eq!(callers.limiter.state.waiting(), 1);
        callers.join(1);
        assert_eq!(
            callers.admissions[101].unwrap().0,
            callers.admissions[1].unwrap().0 + INTERVAL,
            "{quota:?}"
        );
    }
}

#[test]
fn used_tokens_survive_a_change_of_settings() {
    let slow = Duration::from_micros(INTERVAL);
    let kinds = [Quota::fixed_window, Quota::token_bucket, Quota::gcra];
    for first in kinds.map(|kind| kind(10, slow)) {
        for between in kinds
            .iter()
            .flat_map(|kind| [kind(0, slow), kind(0, slow * 50), kind(3, slow), kind(99, slow * 2)])
        {
            let mut limiter = Bench::<State>::new();
            limiter.ask(&take(1, 10, first, Duration::ZERO));
            limiter.ask(&Request::Take {
                id: Id::from(2),
                tokens: 99,
                quota: between,
                patience: Duration::ZERO,
                wait: None,
            });
            let reply = limiter.ask(&take(3, 1, first, Duration::ZERO));
            let used = matches!(reply, Reply::Limited { remaining: 0, retry_after: Some(after), .. } if after <= slow);
            assert!(used, "{first:?}, {between:?}: {reply:?}");
        }
    }
}

#[test]
fn clock_set_back_delays_no_caller() {
    let per = Duration::from_micros(INTERVAL);
    for quota in [Quota::fixed_window(2, per), Quota::token_bucket(2, per), Quota::gcra(2, per)] {
        let mut limiter = Bench::<State>::new();
        limiter.ask(&take(1, 2, quota, Duration::ZERO));
        limiter.ask(&take(2, 2, quota, Duration::MAX));
        limiter.now = limiter.now - Duration::from_secs(600);
        let reply = limiter.ask(&take(3, 2, quota, Duration::MAX));
        assert_eq!(limiter.notified(), [Id::from(2)], "{quota:?}");
        let again = limiter.ask(&take(2, 2, quota, Duration::MAX));
        assert!(matches!(again, Reply::Admitted { wait, .. } if wait == per), "{quota:?}: {again:?}");
        assert!(matches!(reply, Reply::Admitted { wait, .. } if wait == per * 2), "{quota:?}: {reply:?}");
        limiter.pass(1000);
        assert!(
            matches!(limiter.ask(&take(4, 1, quota, Duration::ZERO)), Reply::Admitted { .. }),
            "{quota:?}"
        );
    }
}

#[test]
fn caller_without_a_time_leaves_silently() {
    let quota = Quota::fixed_window(0, Duration::from_micros(INTERVAL));
    let mut limiter = Bench::<State>::new();
    for id in 0..3 {
        limiter.ask(&take(id, 1, quota, Duration::MAX));
    }
    for id in 0..3 {
        limiter.ask(&Request::Cancel { id: Id::from(id), tombstone: false });
    }
    assert_eq!(limiter.notified(), []);
    assert!(limiter.state.is_idle(), "nothing is left");
}

#[test]
fn window_starts_on_demand_bucket_keeps_its_beat() {
    let per = Duration::from_micros(INTERVAL);
    let fixed = admissions(
        Quota::fixed_window(1, per),
        &[(0, 1, 0), (150_000, 1, 0), (60_000, 1, 0), (40_000, 1, 0)],
    );
    assert_eq!(fixed, [Some((0, 1)), Some((150_000, 1)), None, Some((250_000, 1))]);
    let bucket = admissions(
        Quota::token_bucket(1, per),
        &[(0, 1, 0), (150_000, 1, 0), (60_000, 1, 0), (40_000, 1, 0)],
    );
    assert_eq!(bucket, [Some((0, 1)), Some((150_000, 1)), Some((210_000, 1)), None]);
}

#[test]
fn unused_limiter_is_forgotten() {
    let per = Duration::from_micros(INTERVAL);
    for quota in [Quota::fixed_window(2, per), Quota::token_bucket(2, per), Quota::gcra(2, per)] {
        let mut limiter = Bench::<State>::new();
        limiter.ask(&take(1, 1, quota, Duration::ZERO));
        assert!(!limiter.state.is_idle());
        limiter.pass(200);
        limiter.tick();
        assert!(limiter.state.is_idle(), "{quota:?}");
    }
}

#[test]
fn change_of_settings_reschedules_and_notifies() {
    let per = Duration::from_micros(INTERVAL);
    let mut limiter = Bench::<State>::new();
    for id in 0..4 {
        limiter.ask(&take(id, 1, Quota::token_bucket(1, per), Duration::MAX));
    }
    let reply = limiter.ask(&take(9, 1, Quota::token_bucket(3, per), Duration::MAX));
    assert_eq!(limiter.notified(), [1, 2, 3].map(Id::from));
    assert!(matches!(reply, Reply::Admitted { wait, .. } if wait == per), "{reply:?}");
    for (id, due) in [(1, Duration::ZERO), (2, Duration::ZERO), (3, per)] {
        let reply = limiter.ask(&take(id, 1, Quota::token_bucket(1, per), Duration::MAX));
        assert!(matches!(reply, Reply::Admitted { wait, .. } if wait == due), "{id}: {reply:?}");
    }
    limiter.ask(&take(10, 1, Quota::token_bucket(0, per), Duration::MAX));
    assert_eq!(limiter.notified(), [3, 9].map(Id::from), "no caller has a time any more");
    let reply = limiter.ask(&take(3, 1, Quota::token_bucket(3, per), Duration::MAX));
    assert!(matches!(reply, Reply::Queued { .. }), "asking again does not change the settings: {reply:?}");
}

/// It may have been woken when its reservation was for another time, and be late.
#[test]
fn woken_caller_is_admitted_after_its_time() {
    let (per, late) = (Duration::from_micros(INTERVAL), Duration::from_micros(1));
    let two_waited = |quota| {
        let mut limiter = Bench::<State>::new();
        for id in 0..3 {
            limiter.ask(&take(id, 1, quota, Duration::MAX));
        }
        limiter.ask(&Request::Cancel { id: Id::from(1), tombstone: false });
        assert_eq!(limiter.notified(), [Id::from(2)], "{quota:?}");
        limiter
    };
    for kind in [Quota::fixed_window, Quota::token_bucket, Quota::gcra] {
        let mut asked = two_waited(kind(1, per));
        let assigned = asked.ask(&take(2, 1, kind(1, per), Duration::MAX));
        assert!(matches!(assigned, Reply::Admitted { wait, .. } if wait == per), "{assigned:?}");
        let mut put_off = two_waited(kind(1, per));
        put_off.ask(&take(3, 1, kind(1, 2 * per), Duration::MAX));
        assert_eq!(put_off.notified(), [Id::from(2)], "at its first time");
        for (mut limiter, due) in [(asked, per), (put_off, 2 * per)] {
            limiter.now = limiter.now + due + late;
            let again = limiter.ask(&take(2, 1, kind(1, per), Duration::ZERO));
            assert!(matches!(again, Reply::Admitted { wait: Duration::ZERO, .. }), "{again:?}");
        }
    }
}
