//! What a state says of itself agrees with what it does.

use super::{
    Act, Machine, Seen, any_acts, plain,
    requests::{id, ids},
};
use crate::{
    clock::Timestamp,
    id::Id,
    primitives::{
        any::{AnyState, Request},
        hold_kind::HoldKind,
        inspection::Inspection,
        parts::hold_request::HoldRequest,
        protocol::Reply,
        rwlock::Mode,
    },
};
use proptest::prelude::*;
use std::time::Duration;

const INSTANT: Duration = Duration::from_micros(1);
const WRITE: HoldKind = HoldKind::ReadWrite(Mode::Write);

fn at_once() -> Act {
    Act { request: None, ..plain(Request::Inspect) }
}

/// Returns what a tick at `now` leads to.
fn tick(state: &AnyState, now: Timestamp) -> Seen {
    Machine { state: state.clone(), now }.act(&at_once())
}

/// Carries out an act and what is due at its time, such as the end of a hold without a lease.
fn settled(machine: &mut Machine, act: &Act) -> Seen {
    machine.act(act);
    machine.act(&at_once())
}

/// Acts without leases that are over as soon as they begin, which no locker asks for.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    any_acts().prop_map(|mut acts| {
        let is_over = |act: &Act| format!("{:?}", act.request).contains("lease: 0ns");
        for act in acts.iter_mut().skip(1).filter(|act| is_over(act)) {
            act.request = None;
        }
        acts
    })
}

/// Returns whether there is something that lasts without users.
fn is_set(state: &AnyState, inspected: &Inspection) -> bool {
    match state {
        AnyState::Event(_) | AnyState::Barrier(_) => inspected.fired == Some(true),
        AnyState::Watchdog(_) => inspected.fired.is_some(),
        AnyState::Latch(_) => inspected.used > Some(0),
        AnyState::Counter(_) => inspected.value != Some(0),
        AnyState::Record(_) => inspected.resets_in.is_some(),
        _ => false,
    }
}

fn is_hold(state: &AnyState) -> bool {
    matches!(state, AnyState::Lock(_) | AnyState::Semaphore(_) | AnyState::Record(_))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Stores sleep until the next tick, and a tick that comes late keeps waiters from what they wait for.
    #[test]
    fn nothing_is_due_before_the_next_tick(acts in acts()) {
        let mut machine = Machine::for_acts(&acts);
        for act in acts.iter().skip(1) {
            let settled = settled(&mut machine, act);
            // Where it has waiters, a store would tick for ever.
            let is_limiter = matches!(machine.state, AnyState::RateLimiter(_));
            let is_over = settled.next_tick.is_some_and(|at| at <= machine.now);
            prop_assert!(!is_over || is_limiter && !settled.has_waiters, "due already after {:?}", act);
            let end = settled.next_tick.unwrap_or(machine.now + Duration::from_secs(100_000_000));
            if act.back > Duration::ZERO || !act.spread.is_zero() || end <= machine.now + INSTANT {
                continue;
            }
            let early = tick(&machine.state, end - INSTANT);
            let used = |seen: &Seen| (seen.inspected.used, seen.inspected.holders.len());
            // What is kept of a run may be over before it is forgotten: it is known for longer.
            if !matches!(machine.state, AnyState::Record(_)) {
                let set = is_set(&machine.state, &early.inspected);
                prop_assert_eq!(set, is_set(&machine.state, &settled.inspected), "early at {:?}", act);
            }
            if is_hold(&machine.state) {
                let unnotified = early.notifications.len() <= settled.notifications.len();
                prop_assert!(unnotified, "early at {:?}: {:?}", act, early);
                prop_assert_eq!(used(&early), used(&settled), "early at {:?}", act);
            }
        }
    }

    #[test]
    fn users_are_holders_and_waiters(acts in acts()) {
        let (mut machine, mut told) = (Machine::for_acts(&acts), Vec::<Id>::new());
        for act in acts.iter().skip(1) {
            let (first, seen) = (machine.act(act), machine.act(&at_once()));
            if let Some(
                Request::Lock(HoldRequest::Acquire { id, .. }) | Request::Semaphore(HoldRequest::Acquire { id, .. }),
            ) = &act.request
            {
                told.retain(|told| told != id);
            }
            told.extend(first.notifications.iter().chain(&seen.notifications).map(|sent| sent.id));
            let waiting = usize::try_from(seen.inspected.waiting).unwrap();
            let holders = seen.inspected.holders.len();
            let placed: Vec<_> =
                ids().zip(&seen.places).filter(|(_, place)| place.is_some()).map(|(id, _)| id).collect();
            // The process of a waiter that was told something, and has not asked since, may be silent. It has no
            // places then.
            let passed_over: Vec<_> =
                seen.inspected.waiters.iter().filter(|waiter| !placed.contains(waiter)).collect();
            prop_assert_eq!(placed.len() + passed_over.len(), waiting, "after {:?}", act);
            let is_heard = |waiter: &Id| {
                let of_its_process = |other: &Id| other.inbox() == waiter.inbox();
                placed.iter().any(of_its_process) || !told.iter().any(of_its_process)
            };
            prop_assert!(!passed_over.into_iter().any(is_heard), "after {:?}", act);
            if act.back.is_zero() && !matches!(machine.state, AnyState::RateLimiter(_)) {
                prop_assert_eq!(seen.users, holders + waiting, "after {:?}", act);
                let is_in_use = seen.users > 0 || is_set(&machine.state, &seen.inspected);
                prop_assert_eq!(seen.is_in_use, is_in_use, "after {:?}", act);
                prop_assert!(!is_hold(&machine.state) || seen.has_waiters == (waiting > 0), "after {:?}", act);
                let permits = seen.inspected.holders.iter().map(|held| held.permits).sum();
                let is_counted = matches!(machine.state, AnyState::Semaphore(_));
                prop_assert!(!is_counted || seen.inspected.used == Some(permits), "after {:?}", act);
            }
            prop_assert!(!(seen.is_idle && (waiting > 0 || holders > 0)), "after {:?}", act);
        }
    }

    #[test]
    fn holds_end_when_the_state_says(acts in acts()) {
        let mut machine = Machine::for_acts(&acts);
        for act in acts.iter().skip(1).filter(|act| act.back.is_zero()) {
            let seen = settled(&mut machine, act);
            let holders = &seen.inspected.holders;
            let (until, now) = (machine.state.held_until(), machine.now);
            if !is_hold(&machine.state) {
                prop_assert_eq!((until, seen.holder, seen.last_fence), (Timestamp::default(), None, 0));
                continue;
            }
            let left = holders.iter().map(|held| held.time_left.map_or(Timestamp::NEVER, |left| now + left));
            prop_assert_eq!(until.max(now), left.max().unwrap_or(now), "after {:?}", act);
            let expected = holders.first().filter(|_| !matches!(machine.state, AnyState::Semaphore(_)));
            let expected = expected.map(|held| (held.fence, held.time_left.map_or(Timestamp::NEVER, |left| now + left)));
            prop_assert_eq!(seen.holder, expected, "after {:?}", act);
            let fences = holders.iter().map(|held| held.fence);
            prop_assert!(fences.max().unwrap_or(0) <= seen.last_fence, "after {:?}", act);
        }
    }

    #[test]
    fn a_free_state_grants_at_once(acts in acts(), number in 0..8_u8, permits in 1..4_u64) {
        let mut machine = Machine::for_acts(&acts);
        for act in acts.iter().skip(1).filter(|act| act.back.is_zero()) {
            let seen = settled(&mut machine, act);
            let kind = match &machine.state {
                AnyState::Lock(_) => HoldKind::Lock,
                AnyState::Semaphore(_) => HoldKind::Semaphore { size: seen.inspected.size.unwrap_or(0), permits },
                AnyState::Record(_) => HoldKind::Record,
                _ => return Ok(()),
            };
            let request = kind.acquire(id(40 + number), Duration::from_secs(1), None);
            let is_free = machine.state.is_free_for(&request);
            let mut later = Machine { state: machine.state.clone(), now: machine.now };
            let reply = later.act(&plain(request)).reply;
            let is_granted = matches!(reply, Some(Reply::Granted { .. } | Reply::Begun { .. }));
            // Waiters are served first, and a run that is over may have an outcome.
            let is_answered = matches!(reply, Some(Reply::Finished { .. } | Reply::Lost));
            prop_assert!(!is_granted || is_free, "{:?} after {:?}", reply, act);
            let may_be_refused = seen.has_waiters || is_answered;
            prop_assert!(is_granted || !is_free || may_be_refused, "{:?} after {:?}", reply, act);
            prop_assert!(is_free || !matches!(kind, HoldKind::Record) || seen.users > 0, "after {:?}", act);
        }
    }

    #[test]
    fn a_deletion_leaves_only_the_fence(acts in acts()) {
        let mut machine = Machine::for_acts(&acts);
        for act in acts.iter().skip(1) {
            let before = machine.act(act);
            let waiting = (0..8_u8).map(id).zip(&before.places).filter(|(_, place)| place.is_some());
            let waiting = waiting.map(|(id, _)| id).collect::<Vec<_>>();
            let once = crate::primitives::parts::idempotency::IdempotencyKey::new(id(50));
            let mut later = Machine { state: machine.state.clone(), now: machine.now };
            let seen = later.act(&plain(Request::Delete(once)));
            prop_assert_eq!(seen.reply, Some(Reply::Deleted));
            prop_assert!(!seen.is_in_use && seen.users == 0, "after {:?}", act);
            prop_assert_eq!(seen.last_fence, before.last_fence, "after {:?}", act);
            let told = |id: &Id| seen.notifications.iter().any(|one| one.id == *id);
            prop_assert!(waiting.iter().all(told), "after {:?}", act);
        }
    }
}

#[test]
fn a_raised_fence_is_passed_by_the_next_grant() {
    let kinds = [HoldKind::Lock, WRITE, HoldKind::Semaphore { size: 2, permits: 1 }, HoldKind::Record];
    for kind in kinds {
        let acquire = plain(kind.acquire(id(1), Duration::from_secs(1), None));
        let mut machine = Machine::for_acts(std::slice::from_ref(&acquire));
        let high = u64::MAX / 2;
        for raised in [high, 5] {
            machine.state.raise_fence(raised);
            assert_eq!(machine.state.last_fence(), high, "it never falls");
        }
        let reply = machine.act(&acquire).reply;
        let granted =
            matches!(reply, Some(Reply::Granted { fence } | Reply::Begun { fence, .. }) if fence == high + 1);
        assert!(granted, "{kind:?}: {reply:?}");
        assert_eq!(machine.state.last_fence(), high + 1);
    }
}

#[test]
fn a_name_is_held_until_its_end() {
    for kind in [HoldKind::Lock, HoldKind::Semaphore { size: 2, permits: 1 }] {
        let (name, lease): (Id, _) = (id(30), Duration::from_secs(10));
        let acquire = plain(kind.acquire_named(id(1), Some(name), lease, None));
        let mut machine = Machine::for_acts(std::slice::from_ref(&acquire));
        assert!(!machine.state.is_held(name, machine.now));
        machine.act(&acquire);
        let end = machine.now + lease;
        assert!(machine.state.is_held(name, machine.now) && machine.state.is_held(name, end - INSTANT));
        assert!(!machine.state.is_held(name, end) && !machine.state.is_held(id(1), machine.now));
    }
}
