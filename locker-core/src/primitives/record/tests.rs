//! The step: each cell of its table, and its laws on random calls.

mod laws;
mod slots;

use super::*;
use crate::primitives::{
    protocol::TOMBSTONE,
    state::State as _,
    tests::bench::{AWAY, Bench, HERE},
    value::MAX_VALUE,
};

const LEASE: Duration = Duration::from_secs(10);
const KEEP: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const REFUSE: AfterCrash = AfterCrash::Refuse { keep: KEEP };

/// Of a result that is kept.
const KEPT: Ask = Ask { slots: None, digest: None, after_crash: AfterCrash::RunAgain };
const HOURLY: Slots = Slots { every: HOUR, from: Duration::from_secs(600), early: Duration::from_secs(30) };

fn id(number: u128) -> Id {
    Id::from(number)
}

fn value(text: &str) -> Value {
    Value::new(text.as_bytes()).expect("a short value")
}

fn finished(text: &str) -> Reply {
    Reply::Finished { value: value(text) }
}

fn same(digest: u128) -> Ask {
    Ask { digest: Some(id(digest)), ..KEPT }
}

fn hourly() -> Ask {
    Ask { slots: Some(HOURLY), ..KEPT }
}

impl Bench<State> {
    fn begin(&mut self, number: u128, ask: Ask) -> Reply {
        self.call(number, AWAY, ask)
    }

    fn call(&mut self, number: u128, wait: Option<Wait>, ask: Ask) -> Reply {
        self.ask(&Request::Hold(HoldRequest::Acquire { id: id(number), lease: LEASE, wait, ask }))
    }

    /// Calls, and expects a run.
    fn run(&mut self, number: u128, ask: Ask) -> (u64, Option<Timestamp>, u64) {
        match self.begin(number, ask) {
            Reply::Begun { fence, slot, missed } => (fence, slot, missed),
            reply => panic!("{reply:?}"),
        }
    }

    fn finish(&mut self, number: u128, text: &str, keep: Duration) -> Reply {
        self.ask(&Request::Finish { id: id(number), value: value(text), keep })
    }

    fn renew(&mut self, number: u128) -> Reply {
        self.ask(&Request::Hold(HoldRequest::Renew { id: id(number), lease: LEASE, once: None }))
    }

    fn release(&mut self, number: u128) -> Reply {
        let (id, tombstone) = (id(number), false);
        self.ask(&Request::Hold(HoldRequest::Release { id, tombstone, once: None }))
    }

    fn cancel(&mut self, number: u128, tombstone: bool) -> Reply {
        self.ask(&Request::Hold(HoldRequest::Cancel { id: id(number), tombstone }))
    }

    fn evict(&mut self, up_to: u64) -> Reply {
        self.ask(&Request::Hold(HoldRequest::Evict { of: None, up_to }))
    }

    fn is_queued(&mut self, number: u128, ask: Ask) -> bool {
        matches!(self.begin(number, ask), Reply::Queued { .. })
    }

    fn set_wall(&mut self, wall: Timestamp) {
        self.wall = Some(wall);
    }
}

/// A record with a run of caller 1 and the waiters 2 and 3.
fn contended(ask: Ask) -> Bench<State> {
    let mut record = Bench::new();
    record.run(1, ask);
    assert!(record.is_queued(2, ask) && record.is_queued(3, ask));
    record
}

#[test]
fn idle_record_runs_the_first_caller() {
    let mut record = Bench::<State>::new();
    assert_eq!(record.finish(1, "x", KEEP), Reply::Lost);
    assert_eq!((record.renew(1), record.release(1)), (Reply::Lost, Reply::NotHeld));
    assert_eq!((record.cancel(1, false), record.evict(u64::MAX)), (Reply::Cancelled, Reply::NotHeld));
    assert!(record.state.is_idle());
    let (fence, slot, missed) = record.run(1, KEPT);
    assert_eq!((slot, missed), (None, 0));
    assert_eq!(record.state.exclusive_holder(), Some((fence, record.now + LEASE)));
}

#[test]
fn run_is_begun_again_by_its_caller_alone() {
    let mut record = contended(KEPT);
    let begun = record.begin(1, KEPT);
    record.pass(4_000);
    assert_eq!(record.begin(1, KEPT), begun, "and its lease is renewed");
    assert_eq!(record.state.held_until(), record.now + LEASE);
    assert_eq!(record.call(4, None, KEPT), Reply::Busy { retry_after: LEASE });
    let queued = record.call(5, HERE, KEPT);
    assert_eq!(queued, Reply::Queued { ahead: 2, recheck_after: Some(LEASE) }, "until the end of the lease");
    assert_eq!(record.finish(2, "x", KEEP), Reply::Lost, "of another caller");
    assert_eq!(record.release(2), Reply::NotHeld);
}

#[test]
fn renewed_run_lasts() {
    let mut record = contended(KEPT);
    record.pass(9_000);
    assert!(matches!(record.renew(1), Reply::Renewed { .. }));
    assert_eq!(record.renew(2), Reply::Lost);
    record.pass(9_000);
    assert_eq!(record.finish(1, "x", KEEP), Reply::Recorded);
}

#[test]
fn another_digest_is_a_mismatch_during_and_after_the_run() {
    let mut record = Bench::<State>::new();
    record.run(1, same(7));
    assert_eq!(record.begin(2, same(8)), Reply::Mismatch);
    assert_eq!(record.call(2, None, same(8)), Reply::Mismatch);
    assert!(record.is_queued(3, same(7)) && record.is_queued(4, KEPT), "no digest agrees with all");
    record.finish(1, "x", KEEP);
    assert_eq!(record.begin(2, same(8)), Reply::Mismatch);
    assert_eq!(record.begin(5, same(7)), finished("x"));
    record.advance(KEEP);
    record.run(2, same(8));
}

#[test]
fn digest_counts_for_an_unknown_outcome() {
    let mut record = Bench::<State>::new();
    record.run(1, Ask { after_crash: REFUSE, ..same(7) });
    record.advance(LEASE);
    assert_eq!(record.begin(2, same(8)), Reply::Mismatch);
    assert_eq!(record.begin(2, same(7)), Reply::Lost);
}

#[test]
fn waiters_get_the_result_of_the_run() {
    let mut record = contended(KEPT);
    assert_eq!(record.finish(1, "x", KEEP), Reply::Recorded);
    assert_eq!(record.notified(), [id(2), id(3)]);
    assert_eq!(record.begin(2, KEPT), finished("x"));
    assert_eq!(record.begin(3, KEPT), finished("x"));
    assert_eq!(record.call(9, None, KEPT), finished("x"), "and so does each later caller");
    record.advance(KEEP);
    assert!(matches!(record.begin(9, KEPT), Reply::Begun { .. }));
}

#[test]
fn repeated_finish_changes_nothing() {
    let mut record = contended(KEPT);
    record.finish(1, "x", Duration::from_secs(100));
    record.pass(99_000);
    assert_eq!(record.finish(1, "y", KEEP), Reply::Recorded);
    assert_eq!(record.begin(4, KEPT), finished("x"));
    record.pass(1_000);
    record.run(4, KEPT);
    assert_eq!(record.finish(1, "y", KEEP), Reply::Lost);
    assert_eq!(record.finish(4, "z", KEEP), Reply::Recorded);
}

#[test]
fn late_finish_counts_while_nothing_has_begun_since() {
    let mut record = contended(KEPT);
    record.advance(LEASE + Duration::from_secs(59));
    assert_eq!(record.finish(1, "x", KEEP), Reply::Recorded);
    assert_eq!(record.begin(2, KEPT), finished("x"));
    let mut record = contended(KEPT);
    record.advance(LEASE);
    record.run(2, KEPT);
    assert_eq!(record.finish(1, "x", KEEP), Reply::Lost);
    assert_eq!(record.finish(2, "y", KEEP), Reply::Recorded);
    for give_up in [0, 1, 2] {
        let mut record = contended(KEPT);
        record.advance(LEASE);
        match give_up {
            0 => record.advance(TOMBSTONE),
            1 => record.with(super::super::state::State::delete),
            _ => assert_eq!(record.cancel(1, false), Reply::Cancelled),
        }
        assert_eq!(record.finish(1, "x", KEEP), Reply::Lost);
    }
}

/// It must not begin in the next slot.
#[test]
fn late_copy_of_a_call_gets_its_own_success() {
    let mut record = Bench::<State>::new();
    record.run(1, hourly());
    record.finish(1, "x", 2 * HOUR);
    let before = record.now;
    record.set_wall(before + 2 * HOUR);
    assert_eq!(record.begin(1, hourly()), finished("x"));
    record.run(2, hourly());
}

/// That is coalescing.
#[test]
fn result_that_is_not_kept_serves_those_that_waited() {
    for wait in [AWAY, HERE] {
        let mut record = Bench::<State>::new();
        record.run(1, KEPT);
        record.call(2, wait, KEPT);
        record.call(3, wait, KEPT);
        assert_eq!(record.finish(1, "x", Duration::ZERO), Reply::Recorded);
        record.run(4, KEPT);
        assert_eq!(record.finish(1, "x", Duration::ZERO), Reply::Recorded, "it is known");
        assert!(record.is_queued(5, KEPT));
        assert_eq!(record.call(2, wait, KEPT), finished("x"));
        let again = record.call(2, wait, KEPT);
        assert_eq!(again == finished("x"), wait == AWAY, "the reply may have been lost");
        record.finish(4, "y", Duration::ZERO);
        assert_eq!(record.call(3, wait, KEPT), finished("x"));
        assert_eq!(record.begin(5, KEPT), finished("y"));
        record.run(6, KEPT);
        record.advance(TOMBSTONE);
        record.run(3, KEPT);
    }
}

#[test]
fn reported_failure_lets_the_next_waiter_run() {
    for ask in [KEPT, Ask { after_crash: REFUSE, ..KEPT }] {
        let mut record = contended(ask);
        assert_eq!(record.release(1), Reply::Released);
        assert_eq!(record.notified(), [id(2), id(3)]);
        record.run(3, ask);
        assert!(record.is_queued(2, ask));
        assert_eq!(record.finish(1, "x", KEEP), Reply::Lost);
        record.cancel(3, false);
        assert_eq!(record.notified(), [id(2)]);
        record.run(2, ask);
    }
}

#[test]
fn end_of_the_lease_lets_the_next_waiter_run() {
    let mut record = contended(KEPT);
    assert_eq!(record.state.next_tick(), Some(record.now + LEASE));
    record.advance(LEASE);
    record.tick();
    assert_eq!(record.notified(), [id(2), id(3)]);
    record.run(2, KEPT);
}

#[test]
fn cancelled_waiter_gets_nothing_and_disturbs_nobody() {
    let mut record = contended(KEPT);
    assert_eq!(record.cancel(2, true), Reply::Cancelled);
    assert_eq!(record.begin(2, KEPT), Reply::Cancelled, "a late copy");
    record.finish(1, "x", Duration::ZERO);
    assert_eq!(record.notified(), [id(3)]);
    assert_eq!(record.begin(2, KEPT), Reply::Cancelled);
    assert_eq!(record.cancel(3, false), Reply::Cancelled);
    record.run(3, KEPT);
}

#[test]
fn late_copy_of_a_call_begins_nothing() {
    let mut record = Bench::<State>::new();
    record.run(1, KEPT);
    record.finish(1, "x", Duration::ZERO);
    assert!(matches!(record.begin(1, KEPT), Reply::Finished { .. }));
    record.run(2, KEPT);
    record.ask(&Request::Hold(HoldRequest::Release { id: id(2), tombstone: true, once: None }));
    assert_eq!(record.begin(2, KEPT), Reply::Cancelled);
}

#[test]
fn refused_run_stays_unknown() {
    let ask = Ask { after_crash: REFUSE, ..KEPT };
    let mut record = contended(ask);
    record.advance(LEASE);
    assert_eq!(record.begin(2, ask), Reply::Lost);
    assert_eq!(record.begin(3, KEPT), Reply::Lost, "that of the run counts");
    assert_eq!(record.begin(1, ask), Reply::Lost);
    assert_eq!((record.renew(1), record.release(1)), (Reply::Lost, Reply::NotHeld));
    assert_eq!(record.cancel(1, false), Reply::Cancelled);
    assert_eq!(record.begin(2, ask), Reply::Lost);
    assert!(record.state.is_in_use());
    record.advance(KEEP);
    record.run(2, ask);
}

#[test]
fn late_finish_settles_an_unknown_outcome() {
    let ask = Ask { after_crash: REFUSE, ..KEPT };
    let mut record = contended(ask);
    record.advance(LEASE);
    assert_eq!(record.begin(2, ask), Reply::Lost);
    assert_eq!(record.finish(2, "y", KEEP), Reply::Lost);
    assert_eq!(record.finish(1, "x", KEEP), Reply::Recorded);
    assert_eq!(record.begin(2, ask), finished("x"));
}

#[test]
fn operator_settles_an_unknown_outcome() {
    let ask = Ask { after_crash: REFUSE, ..KEPT };
    let mut record = contended(ask);
    record.advance(LEASE);
    record.with(super::super::state::State::delete);
    record.run(2, ask);
}

/// A holder may go on without its lease.
#[test]
fn evicted_run_is_over_as_without_its_lease() {
    let mut record = contended(KEPT);
    assert_eq!(record.evict(0), Reply::NotHeld);
    assert_eq!(record.evict(u64::MAX), Reply::Released);
    assert_eq!(record.notified(), [id(2), id(3)]);
    record.run(2, KEPT);
    let ask = Ask { after_crash: REFUSE, ..KEPT };
    let mut record = contended(ask);
    assert_eq!(record.evict(u64::MAX), Reply::Released);
    assert_eq!(record.begin(2, ask), Reply::Lost);
}

#[test]
fn run_of_one_attempt_is_evicted() {
    let mut record = contended(KEPT);
    let of = |number| Request::Hold(HoldRequest::Evict { of: Some(id(number)), up_to: u64::MAX });
    assert_eq!(record.ask(&of(2)), Reply::NotHeld);
    assert_eq!(record.state.run(), Some(id(1)));
    assert_eq!(record.ask(&of(1)), Reply::Released);
    assert_eq!(record.state.run(), None);
    assert_eq!(record.state.lasts_until(), record.now + TOMBSTONE, "its success may be on its way");
}

/// A look asks without a step before it.
#[test]
fn inspection_leaves_out_what_is_over() {
    let ask = Ask { after_crash: REFUSE, ..KEPT };
    let mut record = Bench::<State>::new();
    let (fence, _, _) = record.run(1, ask);
    let (now, end) = (record.now, record.now + LEASE);
    let seen = record.state.inspect(now).holders;
    assert_eq!(seen, [Held { time_left: Some(LEASE), tag: Some(id(1).tag()), ..Held::new(fence, 1) }]);
    assert!(record.state.is_held(id(1), now) && !record.state.is_held(id(2), now));
    assert!(!record.state.is_held(id(1), end) && record.state.inspect(end).holders.is_empty());
    record.advance(LEASE);
    record.tick();
    assert_eq!(record.state.inspect(end).resets_in, Some(KEEP), "the outcome is unknown");
    assert_eq!(record.state.inspect(end + KEEP).resets_in, None);
    record.finish(1, "x", KEEP);
    let kept = record.state.inspect(end);
    assert_eq!((kept.fired, kept.resets_in), (Some(true), Some(KEEP)));
    assert_eq!(record.state.next_tick(), Some(end + KEEP));
    let over = record.state.inspect(end + KEEP);
    assert_eq!((over.fired, over.resets_in), (Some(false), None));
}

#[test]
fn run_without_a_lease_says_no_end() {
    let mut record = Bench::<State>::new();
    let lease = Duration::MAX;
    record.ask(&Request::Hold(HoldRequest::Acquire { id: id(1), lease, wait: None, ask: KEPT }));
    assert_eq!(record.state.inspect(record.now).holders[0].time_left, None);
    assert_eq!(record.call(2, None, KEPT), Reply::Busy { retry_after: Duration::ZERO });
}

#[test]
fn nothing_begins_in_a_quiet_time_and_replays_go_on() {
    let quiet = Duration::from_secs(20);
    let mut record = Bench::<State>::new();
    record.quiet = Some(quiet);
    assert_eq!(record.call(1, None, KEPT), Reply::Busy { retry_after: quiet });
    assert_eq!(
        record.begin(1, same(1)),
        Reply::Queued { ahead: 0, recheck_after: Some(Duration::from_secs(5)) }
    );
    assert!(record.is_queued(2, same(2)));
    record.quiet = None;
    record.run(1, same(1));
    assert_eq!(record.notified(), [id(2)], "its digest was compared with nothing");
    assert_eq!(record.begin(2, same(2)), Reply::Mismatch);
    record.quiet = Some(quiet);
    assert!(matches!(record.renew(1), Reply::Renewed { .. }));
    assert_eq!(record.finish(1, "x", KEEP), Reply::Recorded);
    assert_eq!(record.begin(3, same(1)), finished("x"));
}

#[test]
fn deletion_forgets_all_but_what_waiters_were_told() {
    let mut record = contended(KEPT);
    record.finish(1, "x", KEEP);
    record.with(super::super::state::State::delete);
    assert!(!record.state.is_in_use());
    assert_eq!(record.begin(2, KEPT), finished("x"));
    record.run(4, KEPT);
    assert!(record.is_queued(5, KEPT));
    record.notified();
    record.with(super::super::state::State::delete);
    assert_eq!(record.notified(), [id(5)]);
    assert_eq!(record.finish(4, "y", KEEP), Reply::Lost);
    record.advance(TOMBSTONE);
    record.tick();
    assert!(record.state.is_idle());
}

#[test]
fn inspection_shows_run_success_and_unknown_outcome() {
    let ask = Ask { after_crash: REFUSE, ..KEPT };
    let mut record = contended(ask);
    let seen = |record: &Bench<State>| record.state.inspect(record.now);
    let running = seen(&record);
    assert_eq!((running.holders.len(), running.waiting, running.fired), (1, 2, Some(false)));
    assert_eq!((running.holders[0].time_left, running.resets_in), (Some(LEASE), None));
    record.advance(LEASE);
    record.tick();
    let unknown = seen(&record);
    assert_eq!((unknown.holders.len(), unknown.fired, unknown.resets_in), (0, Some(false), Some(KEEP)));
    record.finish(1, "x", MINUTE);
    let done = seen(&record);
    assert_eq!((done.fired, done.resets_in), (Some(true), Some(MINUTE)));
}

/// Results for waiters would fill a store otherwise: a run of a millisecond may have a large one.
#[test]
fn results_for_waiters_have_a_bound() {
    let mut record = Bench::<State>::new();
    let large = Value::new(vec![7; MAX_VALUE / 4]).expect("a value");
    for run in 0..10 {
        record.run(1_000 + run, KEPT);
        assert!(record.is_queued(run, KEPT));
        record.ask(&Request::Finish { id: id(1_000 + run), value: large.clone(), keep: Duration::ZERO });
    }
    let served = (0..10).filter(|run| matches!(record.begin(*run, KEPT), Reply::Finished { .. })).count();
    assert_eq!(served, 4, "the last ones");
    assert_eq!(Value::new(vec![0; MAX_VALUE + 1]), None);
}

#[test]
fn results_without_waiters_take_no_room() {
    let mut record = Bench::<State>::new();
    for run in 0..200 {
        record.run(run, KEPT);
        let value = Value::new(vec![7; MAX_VALUE]).expect("a value");
        record.ask(&Request::Finish { id: id(run), value, keep: Duration::ZERO });
    }
    assert!(record.state.results.bytes() == 0 && record.state.results.len() <= 100);
}

#[test]
fn values_are_not_shown() {
    assert_eq!(format!("{:?}", finished("secret")), "Finished { value: Value(6 bytes) }");
}
