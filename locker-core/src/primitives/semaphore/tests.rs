//! The step against a model that is too simple to be wrong.

mod by_name;

use super::*;
use crate::primitives::{
    protocol::{GRANT_WINDOW, TOMBSTONE},
    state::State as _,
    tests::bench::{Bench, HERE, name},
};
use proptest::prelude::*;
use std::collections::HashSet;

const LEASE: Duration = Duration::from_millis(100);
const MAY_BE_OVERTAKEN: Option<Wait> = Some(Wait { live: None, fair: false });

fn acquire(id: u128, key: u128, size: u64, permits: u64, wait: Option<Wait>) -> Request {
    let ask = Permits { size, permits, key: Id::from(key) };
    HoldRequest::Acquire { id: Id::from(id), lease: LEASE, wait, ask }
}

fn release(key: u128) -> Request {
    HoldRequest::Release { id: Id::from(key), tombstone: false, once: None }
}

fn cancel(id: u128) -> Request {
    HoldRequest::Cancel { id: Id::from(id), tombstone: false }
}

#[test]
fn inspection_lists_the_first_waiters() {
    let mut semaphore = Bench::<State>::new();
    (0..150).for_each(|id| drop(semaphore.ask(&acquire(id, id, 2, 1, HERE))));
    semaphore.ask(&cancel(3));
    let seen = semaphore.state.inspect(semaphore.now);
    let first: Vec<_> = [2].into_iter().chain(4..103).map(Id::from).collect();
    assert_eq!((seen.holders.len(), seen.waiting, seen.waiters), (2, 147, first));
}

#[test]
fn eviction_ends_holds_up_to_its_fence() {
    let mut semaphore = Bench::<State>::new();
    let evict = |up_to| HoldRequest::Evict { of: None, up_to };
    assert_eq!(semaphore.ask(&evict(u64::MAX)), Reply::NotHeld);
    let fences = [1, 2].map(|id| match semaphore.ask(&acquire(id, id, 2, 1, None)) {
        Reply::Granted { fence } => fence,
        reply => panic!("{reply:?}"),
    });
    assert_eq!(semaphore.ask(&evict(fences[0] - 1)), Reply::NotHeld);
    assert_eq!(semaphore.ask(&evict(fences[0])), Reply::Released);
    let left: Vec<u64> = semaphore.state.holders().iter().map(|(_, fence, ..)| *fence).collect();
    assert_eq!(left, [fences[1]]);
}

#[derive(Clone, Debug)]
enum Act {
    Acquire { id: u128, key: u128, size: u64, permits: u64, wait: Option<Wait> },
    Renew(u128),
    Release(u128),
    Cancel(u128),
    Evict,
    Pass(u64),
}

/// Ids 0 to 7 are attempts. Some hold under their own id, others under the names 100 and 101.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    let id = 0..8_u128;
    let key = prop_oneof![0..8_u128, 100..102_u128];
    let key_of = |id: u128| if id < 5 { id } else { 100 + id % 2 };
    let act = prop_oneof![
        5 => (id.clone(), 0..5_u64, 1..4_u64, prop::sample::select(vec![None, HERE, HERE, MAY_BE_OVERTAKEN]))
            .prop_map(move |(id, size, permits, wait)| Act::Acquire { id, key: key_of(id), size, permits, wait }),
        1 => key.clone().prop_map(Act::Renew),
        3 => key.prop_map(Act::Release),
        1 => id.prop_map(Act::Cancel),
        1 => Just(Act::Evict),
        1 => (1..70_u64).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 1..150)
}

fn request(act: &Act, state: &State) -> Option<Request> {
    Some(match *act {
        Act::Acquire { id, key, size, permits, wait } => acquire(id, key, size, permits, wait),
        Act::Renew(key) => HoldRequest::Renew { id: Id::from(key), lease: LEASE, once: None },
        Act::Release(key) => release(key),
        Act::Cancel(id) => cancel(id),
        Act::Evict => HoldRequest::Evict {
            of: None,
            up_to: state.holders().iter().map(|(_, fence, ..)| *fence).max().unwrap_or(0),
        },
        Act::Pass(_) => return None,
    })
}

const NOBODY: u128 = u128::MAX;

struct Held {
    key: u128,
    by: u128,
    /// Other attempts that waited for the hold.
    others: Vec<u128>,
    permits: u64,
    until: Timestamp,
}

struct Place {
    by: u128,
    key: u128,
    permits: u64,
    fair: bool,
}

/// The semaphore as one would write it first: two lists.
#[derive(Default)]
struct Model {
    size: u64,
    held: Vec<Held>,
    queue: Vec<Place>,
    refused: HashSet<u128>,
}

impl Model {
    fn fits(&self, permits: u64) -> bool {
        self.held.iter().map(|held| held.permits).sum::<u64>() + permits <= self.size
    }

    fn never_fits(&self, permits: u64) -> bool {
        self.size > 0 && permits > self.size
    }

    fn holds(&self, key: u128) -> bool {
        self.held.iter().any(|held| held.key == key)
    }

    /// Serves fair waiters only: an unfair one is woken and must ask again.
    fn serve(&mut self, now: Timestamp) {
        while let Some(&Place { by, key, permits, fair }) = self.queue.first() {
            if let Some(held) = self.held.iter_mut().find(|held| held.key == key) {
                held.others.push(by);
                self.queue.remove(0);
            } else if self.never_fits(permits) {
                self.queue.remove(0);
                self.refused.insert(by);
            } else if fair && self.fits(permits) {
                self.queue.remove(0);
                self.held.push(Held { key, by, others: Vec::new(), permits, until: now + LEASE });
            } else {
                return;
            }
        }
    }

    fn act(&mut self, act: &Act, now: Timestamp) -> &'static str {
        self.held.retain(|held| held.until > now);
        match *act {
            Act::Acquire { id, key, .. } if self.refused.contains(&id) => {
                if self.holds(key) {
                    "granted"
                } else {
                    "cancelled"
                }
            }
            Act::Acquire { id, key, size, permits, wait } => {
                let waits = self.queue.iter().any(|place| place.by == id);
                let knows = |held: &Held| held.by == id && held.key != id || held.others.contains(&id);
                let confirms = self.held.iter().any(knows);
                self.size = if waits || confirms { self.size } else { size };
                let head_is_fair = self.queue.first().is_some_and(|head| head.fair);
                if wait != MAY_BE_OVERTAKEN || head_is_fair {
                    self.serve(now);
                }
                let overtakes = wait == MAY_BE_OVERTAKEN && self.queue.first().is_none_or(|head| !head.fair);
                let said = if let Some(held) = self.held.iter_mut().find(|held| held.key == key) {
                    if held.by != id {
                        held.others.extend([held.by].iter().filter(|by| **by != key && **by != NOBODY));
                        held.by = NOBODY;
                    }
                    self.queue.retain(|place| place.by != id);
                    "granted"
                } else if self.never_fits(permits) {
                    self.refused.insert(id);
                    self.queue.retain(|place| place.by != id);
                    "cancelled"
                } else if self.fits(permits)
                    && (overtakes || self.queue.first().is_none_or(|head| head.by == id))
                {
                    self.queue.retain(|place| place.by != id);
                    self.held.push(Held { key, by: id, others: Vec::new(), permits, until: now + LEASE });
                    "granted"
                } else if let Some(wait) = wait {
                    let place = Place { by: id, key, permits, fair: wait.fair };
                    match self.queue.iter_mut().find(|place| place.by == id) {
                        Some(old) => *old = place,
                        None => self.queue.push(place),
                    }
                    "queued"
                } else {
                    self.queue.retain(|place| place.by != id);
                    "busy"
                };
                self.serve(now);
                said
            }
            Act::Renew(key) => {
                if let Some(held) = self.held.iter_mut().find(|held| held.key == key) {
                    held.until = now + LEASE;
                    return "renewed";
                }
                if !self.queue.iter().any(|place| place.by == key) {
                    self.serve(now);
                }
                "lost"
            }
            Act::Release(key) if self.holds(key) => {
                self.held.retain(|held| held.key != key);
                self.serve(now);
                "released"
            }
            Act::Evict if !self.held.is_empty() => {
                self.held.clear();
                self.serve(now);
                "released"
            }
            Act::Release(_) | Act::Evict => "not held",
            Act::Cancel(id) => {
                self.queue.retain(|place| place.by != id);
                self.held.retain(|held| held.by != id);
                self.serve(now);
                "cancelled"
            }
            Act::Pass(_) => "passed",
        }
    }
}

proptest! {
    #[test]
    fn semaphore_agrees_with_a_model(acts in acts()) {
        let (mut semaphore, mut model) = (Bench::<State>::new(), Model::default());
        let (mut last_fence, mut notified) = (0, HashSet::new());
        for act in &acts {
            match act {
                Act::Pass(millis) => semaphore.pass(*millis),
                Act::Acquire { id, .. } => {
                    notified.remove(&Id::from(*id));
                }
                _ => {}
            }
            let said = request(act, &semaphore.state).map_or("passed", |request| name(&semaphore.ask(&request)));
            prop_assert_eq!(said, model.act(act, semaphore.now), "at {:?} of {:?}", act, acts);
            let now = semaphore.now;
            let mut here: Vec<_> = semaphore.state.holders().into_iter().filter(|held| held.3 > now).collect();
            let fences: Vec<u64> = here.iter().map(|held| held.1).collect();
            prop_assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "every hold has a fence of its own");
            let newest = fences.last().copied().unwrap_or(last_fence);
            last_fence = last_fence.max(newest);
            here.sort_by_key(|held| held.0);
            let mut there: Vec<_> = model.held.iter().filter(|held| held.until > now)
                .map(|held| (Id::from(held.key), held.permits, held.until)).collect();
            there.sort_by_key(|held| held.0);
            let here: Vec<_> = here.into_iter().map(|held| (held.0, held.2, held.3)).collect();
            prop_assert_eq!(here, there);
            prop_assert_eq!(semaphore.state.waiting(), model.queue.len());
            prop_assert_eq!(semaphore.state.size, model.size);
            notified.extend(semaphore.notified());
            // Expired holds are noticed by the tick.
            let served = matches!(said, "passed" | "renewed" | "lost" | "not held")
                || matches!(act, Act::Acquire { id, .. } if model.refused.contains(id))
                || model.queue.first().is_none_or(|head| {
                    !model.fits(head.permits) || notified.contains(&Id::from(head.by))
                });
            prop_assert!(served, "free permits and a head that is not notified, after {:?} of {:?}", act, acts);
        }
    }

    /// After any requests, once all callers have left.
    #[test]
    fn semaphore_forgets_callers_that_left(acts in acts()) {
        let mut semaphore = Bench::<State>::new();
        for act in &acts {
            if let Some(request) = request(act, &semaphore.state) {
                let _ = semaphore.ask(&request);
            }
        }
        for id in 0..8 {
            semaphore.ask(&cancel(id));
        }
        semaphore.pass(u64::try_from(TOMBSTONE.as_millis()).unwrap());
        semaphore.tick();
        prop_assert!(semaphore.state.is_idle());
    }

    /// While the size stays: a last attempt leaves the queue, and its copy may resize. Except for the release of a name
    /// that several attempts hold one after another, since its copy ends the next hold.
    #[test]
    fn repeated_request_changes_nothing(acts in acts()) {
        let (mut once, mut twice) = (Bench::<State>::new(), Bench::<State>::new());
        for mut act in acts {
            if let Act::Acquire { id, size, permits, .. } = &mut act {
                (*size, *permits) = (2, 1 + u64::from(*id == 3));
            }
            let act = &act;
            if let Act::Pass(millis) = act {
                once.pass(*millis);
                twice.pass(*millis);
            }
            let Some(request) = request(act, &once.state) else { continue };
            let reply = once.ask(&request);
            prop_assert_eq!(&reply, &twice.ask(&request));
            if matches!(act, Act::Release(100..)) {
                continue;
            }
            let again = twice.ask(&request);
            let may_differ = match (&reply, &again) {
                (Reply::Released, Reply::NotHeld) => true,
                // The first copy let another attempt hold the name.
                (Reply::Lost, Reply::Renewed { .. }) => matches!(act, Act::Renew(100..)),
                _ => false,
            };
            prop_assert!(again == reply || may_differ, "{:?}, then {:?}", reply, again);
            prop_assert_eq!(once.state.holders(), twice.state.holders());
            prop_assert_eq!(once.state.waiting(), twice.state.waiting());
        }
    }
}

#[test]
fn remote_grant_is_short_until_confirmed() {
    let away = Some(Wait { live: Some(Duration::from_secs(5)), fair: true });
    let long = Duration::from_secs(60);
    let mut semaphore = Bench::<State>::new();
    semaphore.ask(&acquire(1, 1, 1, 1, None));
    let ask = Permits { size: 1, permits: 1, key: Id::from(100) };
    let waiting = HoldRequest::Acquire { id: Id::from(2), lease: long, wait: away, ask };
    semaphore.ask(&waiting);
    semaphore.ask(&release(1));
    assert_eq!(semaphore.state.holders()[0].3, semaphore.now + GRANT_WINDOW);
    assert!(matches!(semaphore.ask(&waiting), Reply::Granted { .. }));
    assert_eq!(semaphore.state.holders()[0].3, semaphore.now + long);
    semaphore.pass(1_000);
    assert!(matches!(semaphore.ask(&waiting), Reply::Granted { .. }));
    assert_eq!(semaphore.state.holders()[0].3, semaphore.now + Duration::from_secs(59), "only once");
}

/// A waiter of another process that was woken and does not ask within the grant window.
#[test]
fn remote_waiter_is_skipped_after_the_window() {
    let away = |fair| Some(Wait { live: Some(Duration::from_secs(30)), fair });
    let mut semaphore = Bench::<State>::new();
    semaphore.ask(&acquire(1, 1, 1, 1, None));
    for (id, fair) in [(2, false), (3, true), (4, true)] {
        assert!(matches!(semaphore.ask(&acquire(id, id, 1, 1, away(fair))), Reply::Queued { .. }));
    }
    semaphore.ask(&release(1));
    assert_eq!(semaphore.notified(), [Id::from(2)]);
    semaphore.pass(1_999);
    assert!(matches!(semaphore.ask(&acquire(3, 3, 1, 1, away(true))), Reply::Queued { .. }));
    semaphore.pass(1);
    assert!(matches!(semaphore.ask(&acquire(4, 4, 1, 1, away(true))), Reply::Queued { .. }));
    assert_eq!(semaphore.state.holders()[0].0, Id::from(3), "in the order of the queue");
    assert_eq!(semaphore.state.waiting(), 1, "the waiter that did not ask again is gone");
}

/// Its future may be kept without being polled.
#[test]
fn woken_waiter_that_stays_away_is_skipped() {
    let mut semaphore = Bench::<State>::new();
    semaphore.ask(&acquire(1, 1, 1, 1, None));
    semaphore.ask(&acquire(2, 2, 1, 1, MAY_BE_OVERTAKEN));
    semaphore.ask(&acquire(3, 3, 1, 1, HERE));
    semaphore.ask(&release(1));
    assert_eq!(semaphore.notified(), [Id::from(2)]);
    assert_eq!(semaphore.state.next_tick(), Some(semaphore.now + GRANT_WINDOW));
    semaphore.pass(2_000);
    semaphore.tick();
    assert_eq!((semaphore.state.holders()[0].0, semaphore.state.waiting()), (Id::from(3), 0));
}

/// Behind a waiter that may be dead, beside a hold that ends, or in a quiet time.
#[test]
fn waiters_ask_again_when_something_may_have_changed() {
    let (live, millis) = (Duration::from_millis(600), Duration::from_millis);
    let away = Some(Wait { live: Some(live), fair: true });
    let long = |id: u128| HoldRequest::Acquire {
        id: Id::from(id),
        lease: Duration::from_secs(60),
        wait: None,
        ask: Permits { size: 1, permits: 1, key: Id::from(id) },
    };
    let recheck = |bench: &mut Bench<State>, id| match bench.ask(&acquire(id, id, 1, 1, away)) {
        Reply::Queued { recheck_after, .. } => recheck_after.unwrap(),
        other => panic!("{other:?}"),
    };
    let mut held = Bench::<State>::new();
    held.ask(&acquire(1, 1, 1, 1, None));
    assert_eq!(recheck(&mut held, 2), LEASE + millis(1), "the hold may end");
    let mut behind = Bench::<State>::new();
    behind.ask(&long(1));
    assert_eq!(recheck(&mut behind, 2), live / 3, "a notification may be lost");
    behind.pass(550);
    assert_eq!(recheck(&mut behind, 3), millis(50 + 1 + 3), "the head may be dead");
    let mut quiet = Bench::<State>::new();
    quiet.quiet = Some(millis(70));
    assert!(matches!(quiet.ask(&acquire(1, 1, 1, 1, None)), Reply::Busy { .. }));
    assert_eq!(recheck(&mut quiet, 2), millis(71), "nothing is granted before");
}
