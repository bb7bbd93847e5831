//! The step against a model that is too simple to be wrong.

mod by_name;

use super::*;
use crate::primitives::{
    protocol::{GRANT_WINDOW, Notification, TOMBSTONE},
    state::State as _,
    tests::bench::{Bench, HERE, name},
};
use proptest::prelude::*;
use std::collections::HashMap;

const LEASE: Duration = Duration::from_millis(100);

impl Bench<State> {
    fn acquire(&mut self, id: u128, wait: Option<Wait>) -> Reply {
        self.ask(&HoldRequest::Acquire { id: Id::from(id), lease: LEASE, wait, ask: None })
    }

    fn release(&mut self, id: u128) -> Reply {
        self.ask(&HoldRequest::Release { id: Id::from(id), tombstone: false, once: None })
    }

    fn cancel(&mut self, id: u128, tombstone: bool) -> Reply {
        self.ask(&HoldRequest::Cancel { id: Id::from(id), tombstone })
    }

    fn holder(&self) -> Option<Id> {
        self.state.holder().filter(|(_, _, until)| *until > self.now).map(|(id, ..)| id)
    }
}

const AWAY: Option<Wait> = Some(Wait { live: Some(Duration::from_millis(300)), fair: true });
const UNFAIR: Option<Wait> = Some(Wait { live: None, fair: false });

#[test]
fn release_grants_to_the_first_waiter() {
    let mut lock = Bench::<State>::new();
    assert!(matches!(lock.acquire(1, HERE), Reply::Granted { .. }));
    assert_eq!(lock.acquire(2, HERE), Reply::Queued { ahead: 0, recheck_after: None });
    assert_eq!(lock.acquire(3, HERE), Reply::Queued { ahead: 1, recheck_after: None });
    assert_eq!(lock.release(1), Reply::Released);
    assert_eq!(lock.holder(), Some(Id::from(2)));
    let [Notification { id, signal: Signal::HandedOff { .. }, .. }] = lock.notifications[..] else {
        panic!("{:?}", lock.notifications)
    };
    assert_eq!(id, Id::from(2));
    assert_eq!(lock.release(1), Reply::NotHeld);
}

/// The store may have lost a grant.
#[test]
fn nothing_is_granted_in_a_quiet_time_and_waiters_ask_at_its_end() {
    let mut lock = Bench::<State>::new();
    let quiet = Duration::from_millis(50);
    lock.quiet = Some(quiet);
    assert!(matches!(lock.acquire(1, None), Reply::Busy { .. }));
    let recheck_after = Some(quiet + Duration::from_millis(1));
    assert_eq!(lock.acquire(2, AWAY), Reply::Queued { ahead: 0, recheck_after });
    lock.notifications.clear();
    lock.tick();
    let told = lock.notifications.drain(..).map(|one| (one.id, one.signal)).collect::<Vec<_>>();
    assert_eq!(told, [(Id::from(2), Signal::Recheck { within: quiet })]);
    lock.quiet = None;
    lock.advance(quiet);
    assert!(matches!(lock.acquire(2, AWAY), Reply::Granted { .. }));
}

#[test]
fn eviction_may_name_the_hold() {
    let mut lock = Bench::<State>::new();
    assert!(matches!(lock.acquire(1, None), Reply::Granted { .. }));
    let mut evict = |of: u128| lock.ask(&HoldRequest::Evict { of: Some(Id::from(of)), up_to: u64::MAX });
    assert_eq!(evict(2), Reply::NotHeld);
    assert_eq!(evict(1), Reply::Released);
}

/// The first one was woken, and has a moment to ask.
#[test]
fn waiter_behind_a_woken_one_asks_again_when_its_moment_is_over() {
    let mut lock = Bench::<State>::new();
    assert!(matches!(lock.acquire(1, None), Reply::Granted { .. }));
    assert!(matches!(lock.acquire(2, UNFAIR), Reply::Queued { .. }));
    assert_eq!(lock.release(1), Reply::Released);
    let wait = Some(Wait { live: Some(Duration::from_secs(30)), fair: true });
    let Reply::Queued { ahead: 1, recheck_after: Some(after) } = lock.acquire(3, wait) else {
        panic!("it is behind the first one")
    };
    assert!(after >= GRANT_WINDOW, "{after:?}");
}

#[test]
fn inspection_shows_no_hold_that_is_over() {
    let mut lock = Bench::<State>::new();
    assert!(matches!(lock.acquire(1, None), Reply::Granted { .. }));
    lock.advance(LEASE);
    assert_eq!(lock.state.inspect(lock.now).holders, []);
}

#[test]
fn inspection_lists_the_first_waiters() {
    let mut lock = Bench::<State>::new();
    (0..150).for_each(|id| drop(lock.acquire(id, AWAY)));
    lock.cancel(2, false);
    let seen = lock.state.inspect(lock.now);
    let first: Vec<_> = [1].into_iter().chain(3..102).map(Id::from).collect();
    assert_eq!((seen.waiting, seen.waiters), (148, first));
    lock.pass(400);
    assert_eq!(
        lock.state.inspect(lock.now),
        Inspection { size: Some(1), ..Inspection::default() },
        "all are gone"
    );
}

#[test]
fn remote_grant_is_short_until_confirmed() {
    let mut lock = Bench::<State>::new();
    lock.acquire(1, None);
    let long = Duration::from_secs(60);
    lock.ask(&HoldRequest::Acquire { id: Id::from(2), lease: long, wait: AWAY, ask: None });
    lock.release(1);
    assert_eq!(lock.state.holder().map(|(_, _, until)| until), Some(lock.now + GRANT_WINDOW));
    assert!(matches!(
        lock.ask(&HoldRequest::Renew { id: Id::from(2), lease: long, once: None }),
        Reply::Renewed { .. }
    ));
    assert_eq!(lock.state.holder().map(|(_, _, until)| until), Some(lock.now + long));
}

#[test]
fn dead_waiter_is_skipped() {
    let mut lock = Bench::<State>::new();
    lock.ask(&HoldRequest::Acquire {
        id: Id::from(1),
        lease: Duration::from_millis(305),
        wait: None,
        ask: None,
    });
    lock.acquire(2, AWAY);
    lock.pass(250);
    lock.acquire(3, AWAY);
    lock.pass(60);
    lock.tick();
    assert_eq!(lock.holder(), Some(Id::from(3)), "2 did not ask for 310 ms and lives 300 ms");
}

#[test]
fn tombstone_rejects_a_late_attempt() {
    let mut lock = Bench::<State>::new();
    assert_eq!(lock.cancel(1, true), Reply::Cancelled);
    assert_eq!(lock.acquire(1, HERE), Reply::Cancelled);
    assert!(!lock.state.is_idle(), "the tombstone is remembered");
    lock.advance(TOMBSTONE);
    lock.tick();
    assert!(lock.state.is_idle());
    assert!(matches!(lock.acquire(1, HERE), Reply::Granted { .. }));
}

#[test]
fn fair_waiter_is_not_overtaken() {
    let mut lock = Bench::<State>::new();
    lock.acquire(1, None);
    lock.acquire(2, HERE);
    lock.advance(LEASE);
    assert!(matches!(lock.acquire(3, UNFAIR), Reply::Queued { .. }));
    assert_eq!(lock.holder(), Some(Id::from(2)));
}

#[test]
fn unfair_waiter_is_woken_and_overtaken() {
    let mut lock = Bench::<State>::new();
    lock.acquire(1, None);
    assert!(matches!(lock.acquire(2, UNFAIR), Reply::Queued { .. }));
    lock.release(1);
    assert!(
        matches!(lock.notifications.pop(), Some(Notification { id, signal: Signal::Wake, .. }) if id == Id::from(2))
    );
    assert!(matches!(lock.acquire(3, UNFAIR), Reply::Granted { .. }));
    assert!(matches!(lock.acquire(2, UNFAIR), Reply::Queued { ahead: 0, .. }), "it keeps its place");
    lock.release(3);
    assert!(matches!(lock.acquire(2, UNFAIR), Reply::Granted { .. }));
    lock.release(2);
    assert!(lock.state.is_idle());
}

/// Its future may be kept without being polled.
#[test]
fn woken_waiter_that_stays_away_is_skipped() {
    let mut lock = Bench::<State>::new();
    lock.acquire(1, None);
    lock.acquire(2, UNFAIR);
    lock.acquire(3, HERE);
    lock.release(1);
    assert_eq!((lock.holder(), lock.state.next_tick()), (None, Some(lock.now + GRANT_WINDOW)));
    lock.advance(GRANT_WINDOW);
    lock.tick();
    assert_eq!((lock.holder(), lock.state.waiting()), (Some(Id::from(3)), 0));
    assert!(matches!(lock.acquire(2, UNFAIR), Reply::Queued { .. }), "it may ask later");
    lock.release(3);
    lock.advance(GRANT_WINDOW / 2);
    assert!(matches!(lock.acquire(4, UNFAIR), Reply::Granted { .. }));
    assert_eq!(lock.state.next_tick(), Some(lock.now + LEASE), "no waiter is skipped while the lock is held");
}

#[test]
fn last_attempt_leaves_the_queue() {
    let mut lock = Bench::<State>::new();
    lock.acquire(1, None);
    lock.acquire(2, HERE);
    assert_eq!(lock.acquire(2, None), Reply::Busy { retry_after: LEASE });
    lock.release(1);
    assert!(lock.state.is_idle());
}

#[test]
fn last_attempt_takes_the_lock_it_was_woken_for() {
    let mut lock = Bench::<State>::new();
    lock.acquire(1, None);
    lock.acquire(2, UNFAIR);
    lock.acquire(3, UNFAIR);
    lock.release(1);
    assert!(matches!(lock.acquire(2, None), Reply::Granted { .. }));
    lock.notifications.clear();
    lock.release(2);
    assert!(
        matches!(lock.notifications[..], [Notification { id, signal: Signal::Wake, .. }] if id == Id::from(3))
    );
}

#[derive(Clone, Debug)]
enum Act {
    Acquire { id: u128, wait: bool },
    Renew(u128),
    Release(u128),
    Cancel { id: u128, tombstone: bool },
    Evict,
    Pass(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let id = 0..6_u128;
    let act = prop_oneof![
        4 => (id.clone(), any::<bool>()).prop_map(|(id, wait)| Act::Acquire { id, wait }),
        1 => id.clone().prop_map(Act::Renew),
        3 => id.clone().prop_map(Act::Release),
        1 => (id, prop::bool::weighted(0.1)).prop_map(|(id, tombstone)| Act::Cancel { id, tombstone }),
        1 => Just(Act::Evict),
        1 => (1..70_u64).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 1..120)
}

/// The simplest lock: a holder, a list of waiters, and a set of refused ids.
#[derive(Default)]
struct Model {
    holder: Option<(u128, Timestamp)>,
    queue: Vec<u128>,
    refused: HashMap<u128, Timestamp>,
}

impl Model {
    fn serve(&mut self, now: Timestamp) {
        if self.holder.is_none() && !self.queue.is_empty() {
            self.holder = Some((self.queue.remove(0), now + LEASE));
        }
    }

    fn act(&mut self, act: &Act, now: Timestamp) -> &'static str {
        self.holder = self.holder.filter(|(_, until)| *until > now);
        self.refused.retain(|_, until| *until > now);
        let held_by = |id| self.holder.is_some_and(|(holder, _)| holder == id);
        match *act {
            Act::Acquire { id, .. } if held_by(id) => "granted",
            Act::Acquire { id, .. } if self.refused.contains_key(&id) => "cancelled",
            Act::Acquire { id, wait } => {
                self.serve(now);
                if self.holder.is_none() {
                    self.holder = Some((id, now + LEASE));
                }
                if self.holder.is_some_and(|(holder, _)| holder == id) {
                    return "granted";
                }
                if !wait {
                    self.queue.retain(|other| *other != id);
                    return "busy";
                }
                if !self.queue.contains(&id) {
                    self.queue.push(id);
                }
                "queued"
            }
            Act::Renew(id) if held_by(id) => {
                self.holder = Some((id, now + LEASE));
                "renewed"
            }
            Act::Renew(id) => {
                if !self.queue.contains(&id) {
                    self.serve(now);
                }
                "lost"
            }
            Act::Release(id) if held_by(id) => {
                self.holder = None;
                self.serve(now);
                "released"
            }
            Act::Evict if self.holder.is_some() => {
                self.holder = None;
                self.serve(now);
                "released"
            }
            Act::Release(_) | Act::Evict => "not held",
            Act::Cancel { id, tombstone } => {
                if tombstone {
                    self.refused.entry(id).or_insert(now + TOMBSTONE);
                }
                self.queue.retain(|other| *other != id);
                self.holder = self.holder.filter(|(holder, _)| *holder != id);
                self.serve(now);
                "cancelled"
            }
            Act::Pass(_) => "passed",
        }
    }
}

fn request(act: &Act, state: &State) -> Option<Request> {
    Some(match *act {
        Act::Acquire { id, wait } => {
            let wait = wait.then_some(Wait { live: None, fair: true });
            HoldRequest::Acquire { id: Id::from(id), lease: LEASE, wait, ask: None }
        }
        Act::Renew(id) => HoldRequest::Renew { id: Id::from(id), lease: LEASE, once: None },
        Act::Release(id) => HoldRequest::Release { id: Id::from(id), tombstone: false, once: None },
        Act::Cancel { id, tombstone } => HoldRequest::Cancel { id: Id::from(id), tombstone },
        Act::Evict => HoldRequest::Evict { of: None, up_to: state.holder().map_or(0, |(_, fence, _)| fence) },
        Act::Pass(_) => return None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// One holder, first in first out, no waiter forgotten: the same replies.
    #[test]
    fn lock_agrees_with_a_model(acts in acts()) {
        let (mut lock, mut model) = (Bench::<State>::new(), Model::default());
        let mut last_fence = 0;
        for act in &acts {
            if let Act::Pass(millis) = act {
                lock.pass(*millis);
            }
            let said = request(act, &lock.state).map_or("passed", |request| {
                let reply = lock.ask(&request);
                name(&reply)
            });
            prop_assert_eq!(said, model.act(act, lock.now), "at {:?} of {:?}", act, acts);
            let expected = model.holder.filter(|(_, until)| *until > lock.now).map(|(id, _)| Id::from(id));
            prop_assert_eq!(lock.holder(), expected);
            prop_assert_eq!(lock.state.waiting(), model.queue.len());
            if let Some((_, fence, _)) = lock.state.holder() {
                prop_assert!(fence >= last_fence, "fences rise");
                last_fence = fence;
            }
        }
    }

    #[test]
    fn every_grant_has_a_higher_fence(acts in acts()) {
        let mut lock = Bench::<State>::new();
        let mut grants: Vec<(Id, u64)> = Vec::new();
        for act in &acts {
            if let Act::Pass(millis) = act {
                lock.pass(*millis);
            }
            if let Some(request) = request(act, &lock.state) {
                let _ = lock.ask(&request);
            }
            if let Some((id, fence, _)) = lock.state.holder() {
                match grants.last() {
                    Some(&(_, last)) if fence == last => prop_assert_eq!(grants.last().map(|grant| grant.0), Some(id)),
                    last => {
                        prop_assert!(last.is_none_or(|&(_, last)| fence > last));
                        grants.push((id, fence));
                    }
                }
            }
        }
    }

    /// After any requests.
    #[test]
    fn repeated_request_changes_nothing(acts in acts()) {
        let (mut once, mut twice) = (Bench::<State>::new(), Bench::<State>::new());
        for act in &acts {
            if let Act::Pass(millis) = act {
                once.pass(*millis);
                twice.pass(*millis);
            }
            let Some(request) = request(act, &once.state) else { continue };
            let reply = once.ask(&request);
            let first = twice.ask(&request);
            let second = twice.ask(&request);
            prop_assert_eq!(&reply, &first);
            match (&first, &second) {
                (Reply::Released, Reply::NotHeld) => {}
                // The first copy granted a free lock to a waiter; the second finds its lease running.
                (Reply::Granted { fence }, Reply::Granted { fence: again }) => prop_assert_eq!(fence, again),
                (first, second) => prop_assert_eq!(first, second),
            }
            prop_assert_eq!(once.state.holder(), twice.state.holder());
            prop_assert_eq!(once.state.waiting(), twice.state.waiting());
        }
    }

    /// After any requests, once all callers have left.
    #[test]
    fn lock_forgets_callers_that_left(acts in acts()) {
        let mut lock = Bench::<State>::new();
        for act in &acts {
            if let Some(request) = request(act, &lock.state) {
                let _ = lock.ask(&request);
            }
        }
        for id in 0..6 {
            lock.cancel(id, false);
        }
        lock.advance(TOMBSTONE);
        lock.tick();
        prop_assert!(lock.state.is_idle());
    }
}
