//! The step against models that are too simple to be wrong, and the bounds that the documentation states.

mod mixed;
mod overload;

use super::*;
use crate::primitives::{
    State as _,
    bench::{Bench, HERE},
};
use proptest::prelude::*;

const INTERVAL: u64 = 100_000;

fn take(id: u128, tokens: u64, quota: Quota, patience: Duration) -> Request {
    Request::Take { id: Id::from(id), tokens, quota, patience, wait: HERE }
}

/// When the tokens were let through, in microseconds since the start; `None`: refused.
fn turns(quota: Quota, calls: &[(u64, u64, u64)]) -> Vec<Option<(u64, u64)>> {
    let mut limiter = Bench::<State>::new();
    let start = limiter.now.as_micros();
    let mut turns = Vec::new();
    for (number, &(pause, tokens, patience)) in calls.iter().enumerate() {
        limiter.now = limiter.now + Duration::from_micros(pause);
        let request = take(number as u128, tokens, quota, Duration::from_micros(patience));
        turns.push(match limiter.ask(&request) {
            Reply::Admitted { wait, .. } => Some(((limiter.now + wait).as_micros() - start, tokens)),
            Reply::Limited { retry_after: Some(after), .. } => {
                assert!(after.as_micros() > u128::from(patience), "refused, and yet there was time");
                None
            }
            reply => panic!("{reply:?}"),
        });
    }
    turns
}

/// The slots as one would write them down: each has a start and what it let through.
struct Slots {
    beat: bool,
    size: u64,
    written: Vec<(u64, u64)>,
}

impl Slots {
    /// When the next tokens are let through, asked for at `now`.
    fn turn(&self, tokens: u64, now: u64) -> (u64, bool) {
        let Some(&(start, used)) = self.written.last() else { return (now, true) };
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
        let (at, is_new) = self.turn(tokens, now);
        if at > now + patience {
            return None;
        }
        if is_new {
            let beat = self.written.last().map(|(start, _)| start + INTERVAL).filter(|_| self.beat);
            let start = beat.filter(|beat| at >= *beat && at < beat + INTERVAL).unwrap_or(at);
            self.written.push((start, 0));
        }
        if let Some((_, used)) = self.written.last_mut() {
            *used += tokens;
        }
        Some((at, tokens))
    }
}

fn calls() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let pause = prop_oneof![3 => Just(0), 3 => 0..INTERVAL / 2, 1 => 0..INTERVAL * 3];
    prop::collection::vec((pause, 1..4_u64, prop_oneof![Just(0), 0..INTERVAL * 5]), 1..120)
}

/// The most tokens let through in any time of this length.
fn densest(turns: &[Option<(u64, u64)>], length: u64) -> u64 {
    let mut times: Vec<_> = turns.iter().flatten().copied().collect();
    times.sort_unstable();
    let from = |start: u64| times.iter().filter(move |(at, _)| *at >= start && *at < start + length);
    times.iter().map(|(start, _)| from(*start).map(|(_, tokens)| tokens).sum()).max().unwrap_or(0)
}

/// The part of a reply that is about tokens. The cancel plans the other reservations again, which may then be a
/// microsecond earlier: how many callers are still in line at such a moment is bookkeeping.
fn tokens_of(reply: Reply) -> Reply {
    match reply {
        Reply::Limited { retry_after, remaining, reset_after, .. } => {
            Reply::Limited { retry_after, remaining, reset_after, waiting: 0 }
        }
        reply => reply,
    }
}

proptest! {
    #[test]
    fn windows_and_buckets_agree_with_a_list_of_slots(calls in calls(), size in 3..8_u64, beat: bool) {
        let per = Duration::from_micros(INTERVAL);
        let quota = if beat { Quota::token_bucket(size, per) } else { Quota::fixed_window(size, per) };
        let (mut model, mut now) = (Slots { beat, size, written: Vec::new() }, 0);
        let expected: Vec<_> = calls.iter().map(|&(pause, tokens, patience)| {
            now += pause;
            model.call(tokens, now, patience)
        }).collect();
        prop_assert_eq!(turns(quota, &calls), expected);
    }

    #[test]
    fn no_interval_sees_more_than_twice_the_size(calls in calls(), size in 3..8_u64, beat: bool) {
        let per = Duration::from_micros(INTERVAL);
        let quota = if beat { Quota::token_bucket(size, per) } else { Quota::fixed_window(size, per) };
        prop_assert!(densest(&turns(quota, &calls), INTERVAL) <= 2 * size);
    }

    #[test]
    fn gcra_keeps_its_burst_and_its_rate(calls in calls(), size in 1..20_u64, burst in 3..8_u64, times in 1..6_u64) {
        let quota = Quota::gcra(size, Duration::from_micros(INTERVAL)).burst(burst);
        let turns = turns(quota, &calls);
        // One more for the token that is rounded up to a whole microsecond.
        prop_assert!(densest(&turns, INTERVAL * times) <= burst + size * times + 1);
        prop_assert!(densest(&turns, 1) <= burst);
    }

    #[test]
    fn turns_come_in_the_order_of_asking(calls in calls(), which in 0..3_usize) {
        let per = Duration::from_micros(INTERVAL);
        let quota = [Quota::fixed_window(3, per), Quota::token_bucket(3, per), Quota::gcra(5, per).burst(3)][which];
        prop_assert!(turns(quota, &calls).iter().flatten().is_sorted_by_key(|(at, _)| *at));
    }

    /// Who cancels before its turn has never been there, as far as those are concerned who ask later.
    #[test]
    fn a_cancelled_turn_takes_nothing(calls in calls(), which in 0..3_usize) {
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

    /// A turn that was told once is told again, and asking again takes nothing and changes no settings.
    #[test]
    fn asking_again_while_waiting_changes_nothing(tokens in prop::collection::vec(1..4_u64, 4..40)) {
        let quota = Quota::token_bucket(3, Duration::from_micros(INTERVAL));
        let mut limiter = Bench::<State>::new();
        let mut told = Vec::new();
        for (number, tokens) in tokens.iter().enumerate() {
            let reply = limiter.ask(&take(number as u128, *tokens, quota, Duration::MAX));
            let Reply::Admitted { wait, .. } = reply else { panic!("{reply:?}") };
            told.push(wait);
        }
        for (number, told) in told.iter().enumerate().filter(|(_, wait)| !wait.is_zero()) {
            let again = limiter.ask(&take(number as u128, 1, Quota::gcra(9, Duration::from_secs(1)), Duration::MAX));
            let Reply::Admitted { wait, .. } = again else { panic!("{again:?}") };
            prop_assert_eq!(wait, *told);
        }
        prop_assert!(limiter.pushed().is_empty());
    }
}

/// Everybody who asked and has not left before its turn: when it comes, and how many tokens it takes.
struct WaitQueue {
    limiter: Bench<State>,
    quota: Quota,
    turns: Vec<Option<(u64, u64)>>,
}

impl WaitQueue {
    /// So many who ask at once, each for one token.
    fn of(number: u64, quota: Quota) -> Self {
        let mut crowd = Self { limiter: Bench::new(), quota, turns: Vec::new() };
        (0..number).for_each(|_| crowd.join(1));
        crowd
    }

    fn ask(&mut self, number: usize, tokens: u64) -> (u64, u64) {
        let reply = self.limiter.ask(&take(number as u128, tokens, self.quota, Duration::MAX));
        let Reply::Admitted { wait, .. } = reply else { panic!("{reply:?}") };
        ((self.limiter.now + wait).as_micros(), tokens)
    }

    fn join(&mut self, tokens: u64) {
        let turn = self.ask(self.turns.len(), tokens);
        self.turns.push(Some(turn));
    }

    /// One whose turn has come has nothing to give back.
    fn leave(&mut self, number: usize) {
        self.limiter.ask(&Request::Cancel { id: Id::from(number as u128), tombstone: false });
        let now = self.limiter.now.as_micros();
        self.turns[number] = self.turns[number].filter(|(at, _)| *at <= now);
    }

    /// Who was woken asks again, and is never put off.
    fn move_up(&mut self) {
        for id in self.limiter.pushed() {
            let number = (0..self.turns.len()).find(|number| Id::from(*number as u128) == id).unwrap();
            let (told, tokens) = self.turns[number].unwrap();
            let turn = self.ask(number, tokens);
            assert!(turn.0 <= told, "another's leaving put {number} off");
            self.turns[number] = Some(turn);
        }
    }
}

proptest! {
    #[test]
    fn a_crowd_that_leaves_never_lets_more_through(
        acts in prop::collection::vec((0..8_u8, 1..4_u64, 0..300_usize, 0..INTERVAL), 0..300),
        which in 0..3_usize,
    ) {
        let per = Duration::from_micros(INTERVAL);
        let quota = [Quota::fixed_window(3, per), Quota::token_bucket(3, per), Quota::gcra(5, per).burst(3)][which];
        let mut crowd = WaitQueue::of(100, quota);
        for (act, tokens, who, pause) in acts {
            match act {
                0..=3 => crowd.leave(who % crowd.turns.len()),
                4..=6 => crowd.join(tokens),
                _ => crowd.limiter.now = crowd.limiter.now + Duration::from_micros(pause),
            }
            crowd.move_up();
        }
        let bound = if which == 2 { 3 + 5 + 1 } else { 6 };
        prop_assert!(densest(&crowd.turns, INTERVAL) <= bound);
    }
}

#[test]
fn in_a_long_line_nobody_moves_up() {
    let per = Duration::from_micros(INTERVAL);
    for quota in [Quota::fixed_window(1, per), Quota::token_bucket(1, per), Quota::gcra(1, per)] {
        let mut crowd = WaitQueue::of(101, quota);
        let told = crowd.turns[100];
        (1..=35).for_each(|number| crowd.leave(number));
        assert_eq!(crowd.limiter.pushed(), [], "{quota:?}");
        assert_eq!(crowd.ask(100, 1), told.unwrap(), "{quota:?}");
        crowd.leave(36);
        assert_eq!(crowd.limiter.pushed().len(), MOVES_UP, "{quota:?}");
        assert_eq!(crowd.ask(100, 1).0, told.unwrap().0 - 36 * INTERVAL, "{quota:?}");
    }
}

/// Whose turns have come does not matter either: what counts is who was let through.
#[test]
fn what_nobody_waits_for_is_free_again() {
    let per = Duration::from_micros(INTERVAL);
    for quota in [Quota::fixed_window(1, per), Quota::token_bucket(1, per), Quota::gcra(1, per)] {
        let mut crowd = WaitQueue::of(101, quota);
        (2..=36).for_each(|number| crowd.leave(number));
        (38..=100).rev().for_each(|number| crowd.leave(number));
        crowd.leave(37);
        crowd.limiter.pass(100);
        assert_eq!(crowd.limiter.state.waiting(), 1);
        crowd.join(1);
        assert_eq!(crowd.turns[101].unwrap().0, crowd.turns[1].unwrap().0 + INTERVAL, "{quota:?}");
    }
}

#[test]
fn what_was_used_is_kept_over_any_other_settings() {
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
fn a_clock_that_is_set_back_makes_nobody_wait_for_it() {
    let per = Duration::from_micros(INTERVAL);
    for quota in [Quota::fixed_window(2, per), Quota::token_bucket(2, per), Quota::gcra(2, per)] {
        let mut limiter = Bench::<State>::new();
        limiter.ask(&take(1, 2, quota, Duration::ZERO));
        limiter.ask(&take(2, 2, quota, Duration::MAX));
        limiter.now = limiter.now - Duration::from_secs(600);
        let reply = limiter.ask(&take(3, 2, quota, Duration::MAX));
        assert_eq!(limiter.pushed(), [Id::from(2)], "{quota:?}");
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
fn who_is_parked_leaves_without_a_word() {
    let quota = Quota::fixed_window(0, Duration::from_micros(INTERVAL));
    let mut limiter = Bench::<State>::new();
    for id in 0..3 {
        limiter.ask(&take(id, 1, quota, Duration::MAX));
    }
    for id in 0..3 {
        limiter.ask(&Request::Cancel { id: Id::from(id), tombstone: false });
    }
    assert_eq!(limiter.pushed(), []);
    assert!(limiter.state.is_idle(), "nothing is left");
}

#[test]
fn a_slot_starts_with_its_first_request_and_a_bucket_keeps_its_beat() {
    let per = Duration::from_micros(INTERVAL);
    let fixed =
        turns(Quota::fixed_window(1, per), &[(0, 1, 0), (150_000, 1, 0), (60_000, 1, 0), (40_000, 1, 0)]);
    assert_eq!(fixed, [Some((0, 1)), Some((150_000, 1)), None, Some((250_000, 1))]);
    let bucket =
        turns(Quota::token_bucket(1, per), &[(0, 1, 0), (150_000, 1, 0), (60_000, 1, 0), (40_000, 1, 0)]);
    assert_eq!(bucket, [Some((0, 1)), Some((150_000, 1)), Some((210_000, 1)), None]);
}

#[test]
fn a_limiter_that_is_full_again_is_forgotten() {
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
fn a_change_of_settings_moves_those_who_wait_and_tells_them() {
    let per = Duration::from_micros(INTERVAL);
    let mut limiter = Bench::<State>::new();
    for id in 0..4 {
        limiter.ask(&take(id, 1, Quota::token_bucket(1, per), Duration::MAX));
    }
    let reply = limiter.ask(&take(9, 1, Quota::token_bucket(3, per), Duration::MAX));
    assert_eq!(limiter.pushed(), [1, 2, 3].map(Id::from));
    assert!(matches!(reply, Reply::Admitted { wait, .. } if wait == per), "{reply:?}");
    for (id, turn) in [(1, Duration::ZERO), (2, Duration::ZERO), (3, per)] {
        let reply = limiter.ask(&take(id, 1, Quota::token_bucket(1, per), Duration::MAX));
        assert!(matches!(reply, Reply::Admitted { wait, .. } if wait == turn), "{id}: {reply:?}");
    }
    limiter.ask(&take(10, 1, Quota::token_bucket(0, per), Duration::MAX));
    assert_eq!(limiter.pushed(), [3, 9].map(Id::from), "nobody has a turn any more");
    let reply = limiter.ask(&take(3, 1, Quota::token_bucket(3, per), Duration::MAX));
    assert!(matches!(reply, Reply::Queued { .. }), "asking again does not change the settings: {reply:?}");
}

/// It may have been told to ask again when its turn was another one, and be late.
#[test]
fn who_was_told_to_ask_again_has_its_turn_when_it_asks_after_that() {
    let (per, late) = (Duration::from_micros(INTERVAL), Duration::from_micros(1));
    let two_waited = |quota| {
        let mut limiter = Bench::<State>::new();
        for id in 0..3 {
            limiter.ask(&take(id, 1, quota, Duration::MAX));
        }
        limiter.ask(&Request::Cancel { id: Id::from(1), tombstone: false });
        assert_eq!(limiter.pushed(), [Id::from(2)], "{quota:?}");
        limiter
    };
    for kind in [Quota::fixed_window, Quota::token_bucket, Quota::gcra] {
        let mut asked = two_waited(kind(1, per));
        let told = asked.ask(&take(2, 1, kind(1, per), Duration::MAX));
        assert!(matches!(told, Reply::Admitted { wait, .. } if wait == per), "{told:?}");
        let mut put_off = two_waited(kind(1, per));
        put_off.ask(&take(3, 1, kind(1, 2 * per), Duration::MAX));
        assert_eq!(put_off.pushed(), [Id::from(2)], "where it was at first");
        for (mut limiter, turn) in [(asked, per), (put_off, 2 * per)] {
            limiter.now = limiter.now + turn + late;
            let again = limiter.ask(&take(2, 1, kind(1, per), Duration::ZERO));
            assert!(matches!(again, Reply::Admitted { wait: Duration::ZERO, .. }), "{again:?}");
        }
    }
}
