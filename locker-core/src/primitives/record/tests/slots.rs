//! Records with slots: a success counts for its slot.

use super::*;

#[test]
fn slot_runs_once() {
    let mut record = Bench::<State>::new();
    let (_, slot, missed) = record.run(1, hourly());
    let slot = slot.expect("a slot");
    assert_eq!((u128::from(slot.as_micros()) % HOUR.as_micros(), missed), (600_000_000, 0));
    record.finish(1, "x", 2 * HOUR);
    let end = slot + HOUR;
    record.now = end - HOURLY.early - Duration::from_micros(1);
    assert_eq!(record.begin(2, hourly()), finished("x"));
    record.now = end - HOURLY.early;
    assert_eq!(record.run(2, hourly()).1, Some(end), "it is early, and counts for its slot");
}

#[test]
fn slots_are_as_early_as_a_tenth_allows() {
    let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
    let minutely = Slots::new(MINUTE);
    assert_eq!(
        (minutely.at(at(119)), minutely.at(at(114)), minutely.at(at(113))),
        (at(120), at(120), at(60))
    );
    let daily = Slots { from: 3 * HOUR, ..Slots::new(24 * HOUR) };
    assert_eq!(daily.at(at(86_400 + 3 * 3600 - 30)), at(86_400 + 3 * 3600));
    assert_eq!(daily.at(at(86_400 + 3 * 3600 - 31)), at(3 * 3600));
    let earlier = Slots { early: 12 * HOUR, ..daily };
    assert_eq!(earlier.at(at(86_400 + 3 * 3600 - 12 * 3600)), at(86_400 + 3 * 3600));
    assert_eq!(earlier.at(at(86_400 + 3 * 3600 - 12 * 3600 - 1)), at(3 * 3600));
    let none = Slots { every: Duration::ZERO, from: Duration::MAX, early: Duration::MAX };
    let _ = (none.at(at(5)), none.at(Timestamp::NEVER), none.count(at(1), Timestamp::NEVER));
}

#[test]
fn run_over_the_edge_belongs_to_the_slot_in_which_it_began() {
    let mut record = Bench::<State>::new();
    let slot = record.run(1, hourly()).1.expect("a slot");
    assert!(record.is_queued(2, hourly()));
    record.ask(&Request::Hold(HoldRequest::Renew { id: id(1), lease: 2 * HOUR, once: None }));
    record.now = slot + HOUR;
    assert!(record.is_queued(3, hourly()));
    record.finish(1, "x", 2 * HOUR);
    assert_eq!(record.run(3, hourly()).1, Some(slot + HOUR), "the next slot is not skipped");
    assert!(record.is_queued(2, hourly()), "a call belongs to the slot in which it asks last");
    record.set_wall(slot);
    assert_eq!(record.begin(2, hourly()), finished("x"), "the slot before is done while the next one runs");
}

#[test]
fn clock_that_steps_back_repeats_no_slot() {
    let mut record = Bench::<State>::new();
    record.run(1, hourly());
    record.finish(1, "x", 2 * HOUR);
    record.set_wall(record.now - 90 * MINUTE);
    assert_eq!(record.begin(2, hourly()), finished("x"));
    record.set_wall(record.now + 60 * MINUTE);
    record.run(3, hourly());
    record.release(3);
    record.set_wall(record.now);
    assert_eq!(record.begin(4, hourly()), finished("x"), "although the slot after has failed");
}

#[test]
fn missed_slots_are_counted() {
    let mut record = Bench::<State>::new();
    let mut missed = |slots: u32, number, is_success| {
        record.advance(slots * HOUR);
        let missed = record.run(number, hourly()).2;
        if is_success {
            record.finish(number, "x", 1000 * HOUR);
        } else {
            record.release(number);
        }
        missed
    };
    assert_eq!(missed(0, 1, false), 0, "the first run");
    assert_eq!(missed(5, 2, true), 0, "nothing has succeeded before");
    assert_eq!(missed(1, 3, true), 0);
    assert_eq!(missed(4, 4, false), 3);
    assert_eq!(missed(1, 5, true), 4, "the failed one as well");
}

#[test]
fn unknown_slot_is_refused_alone_and_counts_as_missed() {
    let ask = Ask { after_crash: REFUSE, ..hourly() };
    let mut record = Bench::<State>::new();
    let slot = record.run(1, ask).1.expect("a slot");
    record.advance(LEASE);
    assert_eq!(record.begin(2, ask), Reply::Lost);
    record.now = slot + HOUR;
    assert_eq!(record.run(2, ask).2, 1, "at the first run");
    record.set_wall(slot);
    assert_eq!(record.begin(3, ask), Reply::Lost, "also while the next slot runs");
    assert_eq!(record.finish(1, "late", 2 * HOUR), Reply::Recorded);
    assert_eq!(record.begin(3, ask), finished("late"));
    record.wall = None;
    record.finish(2, "x", 10 * HOUR);
    record.now = slot + 2 * HOUR;
    record.run(4, ask);
    record.advance(LEASE);
    record.now = slot + 3 * HOUR;
    let (_, _, missed) = record.run(5, ask);
    assert_eq!(missed, 1, "after a success");
    record.set_wall(slot + HOUR);
    assert_eq!(record.begin(6, ask), finished("x"), "the success before is known as well");
}

/// A deployment that shortens the slots, and is taken back.
#[test]
fn shorter_slots_do_not_shorten_how_long_a_success_counts() {
    let daily = Ask { slots: Some(Slots::new(24 * HOUR)), ..KEPT };
    let mut record = Bench::<State>::new();
    record.run(1, daily);
    record.finish(1, "x", 48 * HOUR);
    record.advance(2 * HOUR);
    record.run(2, hourly());
    record.finish(2, "y", 2 * HOUR);
    record.advance(4 * HOUR);
    assert_eq!(record.begin(3, daily), finished("y"));
}

/// One record, by two programs.
#[test]
fn kept_result_counts_for_slots_too() {
    let mut record = Bench::<State>::new();
    record.run(1, KEPT);
    record.finish(1, "x", 2 * HOUR);
    assert_eq!(record.begin(2, hourly()), finished("x"));
    record.advance(HOUR);
    assert_eq!(record.begin(3, hourly()), finished("x"), "also in the next slot");
    record.advance(HOUR);
    record.run(4, hourly());
    record.finish(4, "y", 3 * HOUR);
    assert_eq!(record.begin(5, KEPT), finished("y"));
}
