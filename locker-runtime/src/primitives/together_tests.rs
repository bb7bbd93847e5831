//! Event, watchdog, barrier, latch and counter against models that are too simple to be wrong.

use super::{
    IdempotencyKey, Reply, State as _, barrier,
    bench::{AWAY, Bench, HERE},
    counter, event, latch, watchdog,
};
use crate::{clock::Timestamp, id::Id};
use proptest::prelude::*;
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

fn asks() -> impl Strategy<Value = Vec<(u8, u128, u64)>> {
    prop::collection::vec((0..10_u8, 0..6_u128, 0..80_u64), 1..120)
}

proptest! {
    #[test]
    fn an_event_is_what_was_sent_last_and_not_reset(asks in asks()) {
        let mut event = Bench::<event::State>::new();
        let mut sent: Option<(u128, Timestamp)> = None;
        let (mut waiting, mut told) = (Vec::<u128>::new(), HashMap::<u128, u128>::new());
        for (number, (kind, who, pause)) in asks.into_iter().enumerate() {
            event.pass(pause);
            sent = sent.filter(|(_, until)| *until > event.now);
            let id = Id::from(who);
            match kind {
                0..=4 => {
                    let reply = event.ask(&event::Request::Wait { id, wait: HERE });
                    waiting.retain(|waiter| *waiter != who);
                    if let Some(message) = told.remove(&who).or(sent.map(|(message, _)| message)) {
                        prop_assert_eq!(reply, Reply::Message(message.to_string().into()));
                    } else {
                        prop_assert!(matches!(reply, Reply::Queued { .. }), "{:?}", reply);
                        waiting.push(who);
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
                    prop_assert_eq!(event.ask(&send), expected.clone(), "a repetition is answered alike");
                    if expected == Reply::Done {
                        sent = Some((by, event.now + keep));
                        let mut woken = event.pushed();
                        woken.sort_unstable();
                        waiting.sort_unstable();
                        told.extend(waiting.iter().map(|waiter| (*waiter, by)));
                        prop_assert_eq!(woken, waiting.drain(..).map(Id::from).collect::<Vec<_>>());
                    }
                }
                7 => {
                    prop_assert_eq!(event.ask(&event::Request::Reset { once: IdempotencyKey::new(Id::random()) }), Reply::Done);
                    sent = None;
                }
                _ => {
                    event.ask(&event::Request::Cancel { id });
                    waiting.retain(|waiter| *waiter != who);
                    told.remove(&who);
                }
            }
            prop_assert_eq!(event.state.is_idle(), sent.is_none() && waiting.is_empty() && told.is_empty());
        }
    }

    #[test]
    fn a_watchdog_has_expired_from_its_deadline_to_the_next_kick(asks in asks()) {
        let mut watchdog = Bench::<watchdog::State>::new();
        let mut deadline: Option<Timestamp> = None;
        for (kind, who, pause) in asks {
            watchdog.pass(pause * 40);
            let id = Id::from(who);
            if kind < 7 {
                let end = *deadline.get_or_insert(watchdog.now + watchdog::FIRST_RUN);
                let reply = watchdog.ask(&watchdog::Request::Wait { id, wait: HERE });
                if end <= watchdog.now {
                    prop_assert_eq!(reply, Reply::Expired);
                } else {
                    let left = end.since(watchdog.now);
                    let told = matches!(reply, Reply::Queued { recheck_after, .. } if recheck_after == Some(left));
                    prop_assert!(told, "{:?}", reply);
                }
            } else {
                watchdog.pushed();
                let expires = Duration::from_millis(1 + pause * 10);
                watchdog.ask(&watchdog::Request::Kick { once: IdempotencyKey::new(Id::random()), expires });
                let earlier = deadline.replace(watchdog.now + expires).is_some_and(|old| old > watchdog.now + expires);
                prop_assert!(earlier || watchdog.pushed().is_empty(), "who waits for longer need not be told");
            }
        }
    }

    #[test]
    fn rounds_of_a_barrier_are_full_and_everybody_passes_once(asks in asks(), parties in 1..5_u64) {
        let mut barrier = Bench::<barrier::State>::new();
        let (mut here, mut rounds) = (Vec::<Id>::new(), 0);
        for (number, (kind, who, _)) in asks.into_iter().enumerate() {
            if kind == 0 {
                let gone = here.get(usize::try_from(who).unwrap()).copied().unwrap_or_else(Id::random);
                barrier.ask(&barrier::Request::Cancel { id: gone, tombstone: true });
                here.retain(|id| *id != gone);
                let late = barrier::Request::Arrive { id: gone, parties, wait: AWAY };
                prop_assert_eq!(barrier.ask(&late), Reply::Done, "who has left does not count");
                continue;
            }
            let id = Id::from(1000 + number as u128);
            let arrive = |id| barrier::Request::Arrive { id, parties, wait: AWAY };
            let reply = barrier.ask(&arrive(id));
            here.push(id);
            if here.len() as u64 == parties {
                rounds += 1;
                prop_assert_eq!(reply, Reply::Done);
                prop_assert_eq!(barrier.pushed(), here[..here.len() - 1].to_vec());
                for id in here.drain(..) {
                    prop_assert_eq!(barrier.ask(&arrive(id)), Reply::Done, "told again");
                }
            } else {
                prop_assert!(matches!(reply, Reply::Queued { .. }), "{:?} in round {}", reply, rounds);
            }
        }
    }

    #[test]
    fn a_latch_opens_with_the_last_count(asks in asks(), count in 0..8_u64) {
        let mut latch = Bench::<latch::State>::new();
        let mut seen = HashSet::new();
        for (kind, who, _) in asks {
            let id = Id::from(u128::from(kind) * 10 + who);
            if kind < 5 {
                seen.insert(id);
                let left = i64::try_from(count.saturating_sub(seen.len() as u64)).unwrap();
                prop_assert_eq!(latch.ask(&latch::Request::CountDown { id, count }), Reply::Value(left));
            } else {
                let reply = latch.ask(&latch::Request::Wait { id, count, wait: HERE });
                prop_assert_eq!(reply == Reply::Done, seen.len() as u64 >= count);
            }
        }
    }

    #[test]
    fn a_counter_counts_every_change_once(asks in asks()) {
        let mut counter = Bench::<counter::State>::new();
        let (mut value, mut sums) = (0_i64, HashMap::new());
        for (kind, who, by) in asks {
            let by = i64::try_from(by).unwrap() - 40;
            if kind == 0 {
                value = by;
                prop_assert_eq!(counter.ask(&counter::Request::Set { once: IdempotencyKey::new(Id::random()), value }), Reply::Value(value));
            } else {
                let id = Id::from(u128::from(kind) * 10 + who);
                let sum = *sums.entry(id).or_insert_with(|| {
                    value += by;
                    value
                });
                prop_assert_eq!(counter.ask(&counter::Request::Add { id, by }), Reply::Value(sum));
            }
            prop_assert_eq!(counter.ask(&counter::Request::Get), Reply::Value(value));
        }
    }
}

#[test]
fn of_a_round_of_one_process_nothing_is_remembered() {
    let mut barrier = Bench::<barrier::State>::new();
    let arrive = |id| barrier::Request::Arrive { id: Id::from(id), parties: 3, wait: HERE };
    for id in 1..=2 {
        assert!(matches!(barrier.ask(&arrive(id)), Reply::Queued { .. }));
    }
    for id in [3, 2, 1] {
        assert_eq!(barrier.ask(&arrive(id)), Reply::Done);
    }
    assert!(barrier.state.is_idle());
}

#[test]
fn of_a_send_no_copy_counts_after_a_repeated_one() {
    let mut event = Bench::<event::State>::new();
    let send = |attempt, repeated| {
        let once = IdempotencyKey { attempt: Id::from(attempt), repeated };
        event::Request::Send { once, message: "x".into(), keep: Duration::from_secs(1) }
    };
    assert_eq!(event.ask(&send(1, true)), Reply::Done);
    assert_eq!(event.ask(&send(2, true)), Reply::Conflict);
    event.ask(&event::Request::Reset { once: IdempotencyKey::new(Id::random()) });
    for repeated in [false, true] {
        assert_eq!(event.ask(&send(1, repeated)), Reply::Done, "it is answered as before");
        assert_eq!(event.ask(&send(2, repeated)), Reply::Conflict, "it is answered as before");
    }
    let looks = event::Request::Wait { id: Id::from(9), wait: None };
    assert!(matches!(event.ask(&looks), Reply::Busy { .. }), "it was reset");
    assert_eq!(event.ask(&send(3, false)), Reply::Done);
    event.ask(&event::Request::Reset { once: IdempotencyKey::new(Id::random()) });
    assert_eq!(event.ask(&send(3, false)), Reply::Done, "nothing is remembered of what was not repeated");
}

#[test]
fn of_a_reset_no_copy_counts_after_a_repeated_one() {
    let mut event = Bench::<event::State>::new();
    let send = |attempt| event::Request::Send {
        once: IdempotencyKey::new(Id::from(attempt)),
        message: "x".into(),
        keep: Duration::from_secs(1),
    };
    let reset = |attempt, repeated| event::Request::Reset {
        once: IdempotencyKey { attempt: Id::from(attempt), repeated },
    };
    event.ask(&send(1));
    assert_eq!(event.ask(&reset(10, true)), Reply::Done);
    event.ask(&send(2));
    for repeated in [false, true] {
        assert_eq!(event.ask(&reset(10, repeated)), Reply::Done, "it is answered as before");
        assert_eq!(event.ask(&send(3)), Reply::Conflict, "it is still sent");
    }
    event.ask(&reset(11, false));
    assert_eq!(event.ask(&send(3)), Reply::Done);
}

#[test]
fn of_setting_a_counter_no_copy_counts_after_a_repeated_one() {
    let mut counter = Bench::<counter::State>::new();
    let set = |attempt, repeated, value| {
        let once = IdempotencyKey { attempt: Id::from(attempt), repeated };
        counter::Request::Set { once, value }
    };
    assert_eq!(counter.ask(&set(1, true, 10)), Reply::Value(10));
    counter.ask(&counter::Request::Add { id: Id::from(2), by: 1 });
    for repeated in [false, true] {
        assert_eq!(counter.ask(&set(1, repeated, 10)), Reply::Value(10), "it is answered as before");
        assert_eq!(counter.ask(&counter::Request::Get), Reply::Value(11));
    }
    counter.ask(&set(3, false, 0));
    assert_eq!(counter.ask(&set(3, false, 5)), Reply::Value(5), "what was not repeated is not remembered");
}

#[test]
fn of_a_kick_no_copy_counts_after_a_repeated_one() {
    let mut watchdog = Bench::<watchdog::State>::new();
    let kick = |attempt, repeated, seconds| {
        let once = IdempotencyKey { attempt: Id::from(attempt), repeated };
        watchdog::Request::Kick { once, expires: Duration::from_secs(seconds) }
    };
    watchdog.ask(&kick(1, true, 50));
    watchdog.ask(&kick(2, false, 5));
    for repeated in [false, true] {
        assert_eq!(watchdog.ask(&kick(1, repeated, 50)), Reply::Done, "it is answered as before");
    }
    let end = watchdog.state.inspect(watchdog.now).resets_in;
    assert_eq!(end, Some(Duration::from_secs(5)));
    watchdog.ask(&kick(2, false, 7));
    let end = watchdog.state.inspect(watchdog.now).resets_in;
    assert_eq!(end, Some(Duration::from_secs(7)), "what was not repeated is not remembered");
}
