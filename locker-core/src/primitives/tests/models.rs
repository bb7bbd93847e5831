//! Event, watchdog, barrier, latch and counter against models that are too simple to be wrong.

use super::bench::{AWAY, Bench, HERE};
use crate::{
    clock::Timestamp,
    id::Id,
    primitives::{
        barrier, counter, event, latch, parts::idempotency::IdempotencyKey, protocol::Reply,
        state::State as _, watchdog,
    },
};
use proptest::prelude::*;
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

fn acts() -> impl Strategy<Value = Vec<(u8, u128, u64)>> {
    prop::collection::vec((0..10_u8, 0..6_u128, 0..80_u64), 1..120)
}

proptest! {
    #[test]
    fn event_returns_the_last_message_until_reset(acts in acts()) {
        let mut event = Bench::<event::State>::new();
        let mut sent: Option<(u128, Timestamp)> = None;
        let (mut waiting, mut notified) = (Vec::<u128>::new(), HashMap::<u128, u128>::new());
        for (number, (kind, caller, pause)) in acts.into_iter().enumerate() {
            event.pass(pause);
            sent = sent.filter(|(_, until)| *until > event.now);
            let id = Id::from(caller);
            match kind {
                0..=4 => {
                    let reply = event.ask(&event::Request::Wait { id, wait: HERE });
                    waiting.retain(|waiter| *waiter != caller);
                    if let Some(message) = notified.remove(&caller).or(sent.map(|(message, _)| message)) {
                        prop_assert_eq!(reply, Reply::Message(message.to_string().into()));
                    } else {
                        prop_assert!(matches!(reply, Reply::Queued { .. }), "{:?}", reply);
                        waiting.push(caller);
                    }
                }
                5..=6 => {
                    let (by, keep) = (1000 + number as u128, Duration::from_millis(100));
                    let send = event::Request::Send {
                        once: IdempotencyKey::new(Id::from(by)),
                        message: by.to_string().into(),
                        keep,
                    };
                    let expected = if sent.is_some() { Reply::Conflict } else { Reply::Done };
                    prop_assert_eq!(event.ask(&send), expected.clone());
                    prop_assert_eq!(event.ask(&send), expected.clone(), "a copy gets the same reply");
                    if expected == Reply::Done {
                        sent = Some((by, event.now + keep));
                        let mut woken = event.notified();
                        woken.sort_unstable();
                        waiting.sort_unstable();
                        notified.extend(waiting.iter().map(|waiter| (*waiter, by)));
                        prop_assert_eq!(woken, waiting.drain(..).map(Id::from).collect::<Vec<_>>());
                    }
                }
                7 => {
                    let reset = event::Request::Reset { once: IdempotencyKey::new(Id::random()) };
                    prop_assert_eq!(event.ask(&reset), Reply::Done);
                    sent = None;
                }
                _ => {
                    event.ask(&event::Request::Cancel { id });
                    waiting.retain(|waiter| *waiter != caller);
                    notified.remove(&caller);
                }
            }
            let seen = event.state.inspect(event.now);
            let left = sent.map(|(_, until)| until.since(event.now));
            let expected = (Some(sent.is_some()), left, waiting.len() as u64);
            prop_assert_eq!((seen.fired, seen.resets_in, seen.waiting), expected);
            prop_assert_eq!(event.state.is_idle(), sent.is_none() && waiting.is_empty() && notified.is_empty());
        }
    }

    #[test]
    fn watchdog_expires_at_the_deadline_until_a_kick(acts in acts()) {
        let mut watchdog = Bench::<watchdog::State>::new();
        let mut deadline: Option<Timestamp> = None;
        for (kind, caller, pause) in acts {
            watchdog.pass(pause * 40);
            let id = Id::from(caller);
            if kind < 7 {
                let end = *deadline.get_or_insert(watchdog.now + watchdog::FIRST_RUN);
                let reply = watchdog.ask(&watchdog::Request::Wait { id, wait: HERE });
                if end <= watchdog.now {
                    prop_assert_eq!(reply, Reply::Expired);
                } else {
                    let left = end.since(watchdog.now);
                    let notified = matches!(reply, Reply::Queued { recheck_after, .. } if recheck_after == Some(left));
                    prop_assert!(notified, "{:?}", reply);
                }
            } else {
                watchdog.notified();
                let expires = Duration::from_millis(1 + pause * 10);
                watchdog.ask(&watchdog::Request::Kick { once: IdempotencyKey::new(Id::random()), expires });
                let earlier = deadline.replace(watchdog.now + expires).is_some_and(|old| old > watchdog.now + expires);
                prop_assert!(earlier || watchdog.notified().is_empty(), "a later deadline wakes no waiter");
            }
            let seen = watchdog.state.inspect(watchdog.now);
            let left = deadline.map(|deadline| deadline.since(watchdog.now));
            prop_assert_eq!((seen.fired, seen.resets_in), (left.map(|left| left.is_zero()), left));
        }
    }

    #[test]
    fn barrier_releases_each_full_round_once(acts in acts(), parties in 1..5_u64) {
        let mut barrier = Bench::<barrier::State>::new();
        let (mut arrived, mut rounds) = (Vec::<Id>::new(), 0);
        for (number, (kind, caller, _)) in acts.into_iter().enumerate() {
            if kind == 0 {
                let gone = arrived.get(usize::try_from(caller).unwrap()).copied().unwrap_or_else(Id::random);
                barrier.ask(&barrier::Request::Cancel { id: gone, tombstone: true });
                arrived.retain(|id| *id != gone);
                let late = barrier::Request::Arrive { id: gone, parties, wait: AWAY, once: false };
                prop_assert_eq!(barrier.ask(&late), Reply::Done, "a caller that left does not count");
                continue;
            }
            let id = Id::from(1000 + number as u128);
            let arrive = |id| barrier::Request::Arrive { id, parties, wait: AWAY, once: false };
            let reply = barrier.ask(&arrive(id));
            arrived.push(id);
            if arrived.len() as u64 == parties {
                rounds += 1;
                prop_assert_eq!(reply, Reply::Done);
                prop_assert_eq!(barrier.notified(), arrived[..arrived.len() - 1].to_vec());
                for id in arrived.drain(..) {
                    prop_assert_eq!(barrier.ask(&arrive(id)), Reply::Done, "a copy gets the same reply");
                }
            } else {
                for reply in [reply, barrier.ask(&arrive(id))] {
                    prop_assert!(matches!(reply, Reply::Queued { .. }), "{:?} in round {}", reply, rounds);
                }
            }
        }
    }

    #[test]
    fn latch_opens_with_the_last_count(acts in acts(), count in 0..8_u64) {
        let mut latch = Bench::<latch::State>::new();
        let mut seen = HashSet::new();
        for (kind, caller, _) in acts {
            let id = Id::from(u128::from(kind) * 10 + caller);
            if kind < 5 {
                seen.insert(id);
                let left = i64::try_from(count.saturating_sub(seen.len() as u64)).unwrap();
                prop_assert_eq!(latch.ask(&latch::Request::CountDown { id, count }), Reply::Value(left));
            } else {
                let reply = latch.ask(&latch::Request::Wait { id, count, wait: HERE });
                prop_assert_eq!(reply == Reply::Done, seen.len() as u64 >= count);
            }
            let told = latch.state.inspect(latch.now);
            prop_assert_eq!((told.size, told.used), (Some(count), Some(seen.len() as u64)));
            prop_assert_eq!(told.fired, Some(seen.len() as u64 >= count));
        }
    }

    #[test]
    fn counter_counts_every_change_once(acts in acts()) {
        let mut counter = Bench::<counter::State>::new();
        let (mut value, mut sums) = (0_i64, HashMap::new());
        for (kind, caller, by) in acts {
            let by = i64::try_from(by).unwrap() - 40;
            if kind == 0 {
                value = by;
                let set = counter::Request::Set { once: IdempotencyKey::new(Id::random()), value };
                prop_assert_eq!(counter.ask(&set), Reply::Value(value));
            } else {
                let id = Id::from(u128::from(kind) * 10 + caller);
                let sum = *sums.entry(id).or_insert_with(|| {
                    value += by;
                    value
                });
                prop_assert_eq!(counter.ask(&counter::Request::Add { id, by }), Reply::Value(sum));
            }
            prop_assert_eq!(counter.ask(&counter::Request::Get), Reply::Value(value));
            prop_assert_eq!(counter.state.inspect(counter.now).value, Some(value));
        }
    }
}

#[test]
fn barrier_forgets_a_round_of_one_process() {
    let mut barrier = Bench::<barrier::State>::new();
    let arrive = |id| barrier::Request::Arrive { id: Id::from(id), parties: 3, wait: HERE, once: false };
    for id in 1..=2 {
        assert!(matches!(barrier.ask(&arrive(id)), Reply::Queued { .. }));
    }
    for id in [3, 2, 1] {
        assert_eq!(barrier.ask(&arrive(id)), Reply::Done);
    }
    assert!(barrier.state.is_idle());
}

#[test]
fn barrier_that_opens_once_refuses_those_that_come_later() {
    let mut barrier = Bench::<barrier::State>::new();
    let arrive = |id, once| barrier::Request::Arrive { id: Id::from(id), parties: 2, wait: HERE, once };
    assert!(matches!(barrier.ask(&arrive(1, true)), Reply::Queued { .. }));
    let seen = barrier.state.inspect(barrier.now);
    assert_eq!((seen.size, seen.waiting, seen.fired), (Some(2), 1, Some(false)));
    assert!(barrier.state.is_in_use());
    for id in [2, 1] {
        assert_eq!(barrier.ask(&arrive(id, true)), Reply::Done);
    }
    let seen = barrier.state.inspect(barrier.now);
    assert_eq!((seen.waiting, seen.fired), (0, Some(true)));
    assert!(barrier.state.is_in_use());
    assert_eq!(barrier.ask(&arrive(3, true)), Reply::Conflict);
    assert!(matches!(barrier.ask(&arrive(4, false)), Reply::Queued { .. }), "it asks for any round");
    assert_eq!(barrier.ask(&arrive(4, true)), Reply::Conflict);
    assert_eq!(barrier.state.users(), 0, "who is refused does not wait");
    let end = barrier.state.next_tick().unwrap();
    assert_eq!(end, barrier.state.lasts_until());
    assert_eq!(barrier.state.inspect(end).fired, Some(false), "a look asks without a step before it");
    barrier.now = end;
    barrier.tick();
    assert!(barrier.state.is_idle());
    assert!(matches!(barrier.ask(&arrive(5, true)), Reply::Queued { .. }));
    assert_eq!(barrier.ask(&arrive(6, false)), Reply::Done);
    assert_eq!(
        barrier.state.inspect(barrier.now).fired,
        Some(false),
        "the last to come did not ask for the last round"
    );
}

#[test]
fn event_ignores_copies_of_a_retried_send() {
    let mut event = Bench::<event::State>::new();
    let send = |attempt, retried| {
        let once = IdempotencyKey { attempt: Id::from(attempt), retried };
        event::Request::Send { once, message: "x".into(), keep: Duration::from_secs(1) }
    };
    assert_eq!(event.ask(&send(1, true)), Reply::Done);
    assert_eq!(event.ask(&send(2, true)), Reply::Conflict);
    event.ask(&event::Request::Reset { once: IdempotencyKey::new(Id::random()) });
    for retried in [false, true] {
        assert_eq!(event.ask(&send(1, retried)), Reply::Done, "a copy gets the same reply");
        assert_eq!(event.ask(&send(2, retried)), Reply::Conflict, "a copy gets the same reply");
    }
    let inspect = event::Request::Wait { id: Id::from(9), wait: None };
    assert!(matches!(event.ask(&inspect), Reply::Busy { .. }), "it was reset");
    assert_eq!(event.ask(&send(3, false)), Reply::Done);
    event.ask(&event::Request::Reset { once: IdempotencyKey::new(Id::random()) });
    assert_eq!(event.ask(&send(3, false)), Reply::Done, "a first attempt is not remembered");
}

#[test]
fn event_ignores_copies_of_a_retried_reset() {
    let mut event = Bench::<event::State>::new();
    let send = |attempt| event::Request::Send {
        once: IdempotencyKey::new(Id::from(attempt)),
        message: "x".into(),
        keep: Duration::from_secs(1),
    };
    let reset = |attempt, retried| event::Request::Reset {
        once: IdempotencyKey { attempt: Id::from(attempt), retried },
    };
    event.ask(&send(1));
    assert_eq!(event.ask(&reset(10, true)), Reply::Done);
    event.ask(&send(2));
    for retried in [false, true] {
        assert_eq!(event.ask(&reset(10, retried)), Reply::Done, "a copy gets the same reply");
        assert_eq!(event.ask(&send(3)), Reply::Conflict, "it is still sent");
    }
    event.ask(&reset(11, false));
    assert_eq!(event.ask(&send(3)), Reply::Done);
}

#[test]
fn counter_ignores_copies_of_a_retried_set() {
    let mut counter = Bench::<counter::State>::new();
    let set = |attempt, retried, value| {
        let once = IdempotencyKey { attempt: Id::from(attempt), retried };
        counter::Request::Set { once, value }
    };
    assert_eq!(counter.ask(&set(1, true, 10)), Reply::Value(10));
    counter.ask(&counter::Request::Add { id: Id::from(2), by: 1 });
    for retried in [false, true] {
        assert_eq!(counter.ask(&set(1, retried, 10)), Reply::Value(10), "a copy gets the same reply");
        assert_eq!(counter.ask(&counter::Request::Get), Reply::Value(11));
    }
    counter.ask(&set(3, false, 0));
    assert_eq!(counter.ask(&set(3, false, 5)), Reply::Value(5), "a first attempt is not remembered");
}

#[test]
fn watchdog_ignores_copies_of_a_retried_kick() {
    let mut watchdog = Bench::<watchdog::State>::new();
    let kick = |attempt, retried, seconds| {
        let once = IdempotencyKey { attempt: Id::from(attempt), retried };
        watchdog::Request::Kick { once, expires: Duration::from_secs(seconds) }
    };
    watchdog.ask(&kick(1, true, 50));
    watchdog.ask(&kick(2, false, 5));
    for retried in [false, true] {
        assert_eq!(watchdog.ask(&kick(1, retried, 50)), Reply::Done, "a copy gets the same reply");
    }
    let end = watchdog.state.inspect(watchdog.now).resets_in;
    assert_eq!(end, Some(Duration::from_secs(5)));
    watchdog.ask(&kick(2, false, 7));
    let end = watchdog.state.inspect(watchdog.now).resets_in;
    assert_eq!(end, Some(Duration::from_secs(7)), "a first attempt is not remembered");
}

#[test]
fn event_that_is_over_is_not_seen() {
    let mut event = Bench::<event::State>::new();
    let (keep, once) = (Duration::from_secs(5), IdempotencyKey::new(Id::from(1)));
    let send = event::Request::Send { once, message: "m".into(), keep };
    assert_eq!(event.ask(&send), Reply::Done);
    let (seen, over) = (event.state.inspect(event.now), event.state.inspect(event.now + keep));
    assert_eq!((seen.fired, seen.resets_in), (Some(true), Some(keep)));
    assert_eq!((over.fired, over.resets_in), (Some(false), None));
}

#[test]
fn counter_stops_where_stores_are_not_exact() {
    for most in [counter::MAX_VALUE, -counter::MAX_VALUE] {
        assert!(counter::is_exact(most) && !counter::is_exact(most + most.signum()));
        let mut counter = Bench::<counter::State>::new();
        let mut add = |id, by| counter.ask(&counter::Request::Add { id: Id::from(id), by });
        assert_eq!(add(1, most), Reply::Value(most));
        assert_eq!(add(2, most.signum()), Reply::Conflict);
        assert_eq!(add(3, -most.signum()), Reply::Value(most - most.signum()));
    }
}
