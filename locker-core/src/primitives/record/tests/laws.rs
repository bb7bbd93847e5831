//! Random calls at random times, also on a clock that steps back.

use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug)]
struct Act {
    kind: u8,
    caller: u128,
    pause: u64,
    /// How far the time of day is set back for this call.
    back: u64,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let pause = prop::sample::select(vec![0, 0, 1, 40, 700, 3_000, 11_000, 400_000, 1_900_000]);
    let back = prop::sample::select(vec![0, 0, 0, 31_000, 1_000_000, 3_000_000]);
    let act = (0..10_u8, 0..6_u128, pause, back);
    prop::collection::vec(
        act.prop_map(|(kind, caller, pause, back)| Act { kind, caller, pause, back }),
        1..200,
    )
}

fn ask(caller: u128, slots: bool, refuse: bool) -> Ask {
    let after_crash = if refuse { AfterCrash::Refuse { keep: 2 * HOUR } } else { AfterCrash::RunAgain };
    let digest = [None, Some(id(1)), Some(id(1)), Some(id(2)), None, Some(id(1))][caller as usize];
    Ask { slots: slots.then_some(HOURLY), digest, after_crash }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Each call is an attempt of its own until it is settled.
    #[test]
    fn a_record_keeps_its_laws(
        acts in acts(),
        slots: bool,
        refuse: bool,
        keep in prop::sample::select(vec![0, 50_000, 7_200_000]),
    ) {
        let mut record = Bench::<State>::new();
        let keep = if slots { 2 * HOUR } else { Duration::from_millis(keep) };
        let (mut attempts, mut next) = (HashMap::<u128, u128>::new(), 100);
        let mut run: Option<(u128, u128, Timestamp, Option<Timestamp>)> = None;
        let (mut last_fence, mut kept_until) = (0, Timestamp::default());
        let mut done = HashSet::<Option<Timestamp>>::new();
        let mut ended = HashMap::<Option<Timestamp>, Timestamp>::new();
        let mut lapsed: Option<(u128, Timestamp, Option<Timestamp>)> = None;
        let mut promised = HashMap::<u128, (u128, Timestamp)>::new();
        for Act { kind, caller, pause, back } in acts {
            record.pass(pause);
            record.set_wall(record.now - Duration::from_millis(back));
            let attempt = *attempts.entry(caller).or_insert_with(|| { next += 1; next });
            if let Some((of, _, until, slot)) = run && until <= record.now {
                run = None;
                if refuse {
                    ended.insert(slot, until + 2 * HOUR);
                } else {
                    lapsed = Some((of, until + TOMBSTONE, slot));
                }
            }
            match kind {
                0..=4 => {
                    let wait = (kind > 0).then_some(AWAY).flatten();
                    let reply = record.call(attempt, wait, ask(caller, slots, refuse));
                    let waited = promised.get(&attempt).copied().filter(|(_, until)| *until > record.now);
                    match reply {
                        Reply::Begun { fence, slot, .. } => {
                            if let Some((holder, _, _, of)) = run {
                                prop_assert_eq!((holder, of), (attempt, slot), "one run at a time");
                            } else {
                                prop_assert!(fence > last_fence, "fences rise");
                                prop_assert!(!slots || !done.contains(&slot), "one success for each slot");
                                prop_assert!(slots || record.now >= kept_until, "one success while it is kept");
                                let is_known = ended.get(&slot).is_none_or(|until| *until <= record.now);
                                prop_assert!(is_known, "nothing begins after an unknown outcome");
                                prop_assert!(slots || waited.is_none(), "a waiter gets the result");
                            }
                            lapsed = None;
                            last_fence = fence;
                            run = Some((attempt, caller, record.now + LEASE, slot));
                        }
                        Reply::Finished { value } => {
                            prop_assert!(slots || waited.is_some() || record.now < kept_until || keep.is_zero());
                            if let (false, Some((of, _))) = (slots, waited) {
                                prop_assert_eq!(value, super::value(&of.to_string()), "the result of its run");
                            }
                            attempts.remove(&caller);
                        }
                        Reply::Mismatch | Reply::Lost => {
                            prop_assert!(reply == Reply::Mismatch || refuse);
                            prop_assert!(slots || waited.is_none());
                            attempts.remove(&caller);
                        }
                        Reply::Queued { .. } => prop_assert!(run.is_some_and(|(of, ..)| of != attempt)),
                        Reply::Busy { .. } => prop_assert!(run.is_some() && wait.is_none()),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                5 | 6 => {
                    let holder = run.filter(|(of, ..)| *of == attempt);
                    let place = |number: &u128| record.state.place(id(*number));
                    let waits = |number: &u128| place(number).is_some_and(|until| until > record.now);
                    let waiting: Vec<_> = (101..=next).filter(waits).collect();
                    let reply = record.finish(attempt, &attempt.to_string(), keep);
                    if let Some((_, _, _, slot)) = holder {
                        prop_assert_eq!(reply, Reply::Recorded);
                        done.insert(slot);
                        kept_until = record.now + keep;
                        promised.extend(waiting.into_iter().map(|waiter| (waiter, (attempt, record.now + TOMBSTONE))));
                        run = None;
                        prop_assert_eq!(record.finish(attempt, "a late copy", keep), Reply::Recorded);
                        attempts.remove(&caller);
                    } else if reply == Reply::Recorded {
                        let late = lapsed.take().filter(|(of, until, _)| *of == attempt && *until > record.now);
                        prop_assert!(refuse || late.is_some(), "of a run whose outcome was unknown");
                        done.extend(late.map(|(_, _, slot)| slot));
                        kept_until = record.now + keep;
                        ended.clear();
                        attempts.remove(&caller);
                    } else {
                        prop_assert_eq!(reply, Reply::Lost);
                        let is_over = lapsed.is_none_or(|(of, until, _)| of != attempt || until <= record.now);
                        prop_assert!(is_over, "a success is lost");
                    }
                }
                7 => {
                    let is_holder = run.is_some_and(|(of, ..)| of == attempt);
                    let reply = record.release(attempt);
                    prop_assert_eq!(reply == Reply::Released, is_holder);
                    run = run.filter(|_| !is_holder);
                }
                8 => {
                    record.cancel(attempt, true);
                    run = run.filter(|(of, ..)| *of != attempt);
                    lapsed = lapsed.filter(|(of, ..)| *of != attempt);
                    promised.remove(&attempt);
                    prop_assert_eq!(record.begin(attempt, KEPT), Reply::Cancelled);
                    attempts.remove(&caller);
                }
                _ => {
                    let is_holder = run.filter(|(of, ..)| *of == attempt);
                    let reply = record.renew(attempt);
                    prop_assert_eq!(matches!(reply, Reply::Renewed { .. }), is_holder.is_some());
                    if let (Some(_), Some((of, caller, _, slot))) = (is_holder, run) {
                        run = Some((of, caller, record.now + LEASE, slot));
                    }
                }
            }
            prop_assert_eq!(record.state.held_until() > record.now, run.is_some());
        }
    }
}
