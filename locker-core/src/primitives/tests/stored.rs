//! Stored states: they come back as they were, and nothing that is read can do harm.

mod golden;
mod requests;
mod sayings;
mod sizes;

use crate::{
    clock::Timestamp,
    key::Key,
    primitives::{
        any::{AnyState, Request},
        counter,
        hold_kind::HoldKind,
        inspection::Inspection,
        latch,
        protocol::{Notification, Reply, Wait},
        rate_limiter::{self, Quota},
        state::Context,
    },
};
use proptest::{prelude::*, strategy::ValueTree};
use requests::{Act, KINDS, acts, ids};
use std::time::Duration;

const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

fn encode(state: &AnyState) -> Vec<u8> {
    postcard::to_stdvec(state).expect("a state can be stored")
}

fn decode(bytes: &[u8]) -> postcard::Result<AnyState> {
    postcard::from_bytes(bytes)
}

/// A state, the time, and what the last act led to.
struct Machine {
    state: AnyState,
    now: Timestamp,
}

/// What others see of a state.
#[derive(Debug, PartialEq)]
struct Seen {
    reply: Option<Reply>,
    notifications: Vec<Notification>,
    inspected: Inspection,
    next_tick: Option<Timestamp>,
    lasts_until: Timestamp,
    places: Vec<Option<Timestamp>>,
    holder: Option<(u64, Timestamp)>,
    last_fence: u64,
    users: usize,
    is_idle: bool,
    is_in_use: bool,
    has_waiters: bool,
}

impl Machine {
    /// The new state of the first act's kind.
    fn for_acts(acts: &[Act]) -> Self {
        let state = acts[0].request.as_ref().and_then(AnyState::for_request).expect("of a kind");
        Self { state, now: START }
    }

    /// Carries out a request, or a tick if there is none.
    fn act(&mut self, act: &Act) -> Seen {
        self.now = self.now + act.pause - act.back;
        let (key, mut notifications) = (Key::new("k"), Vec::new());
        let mut context = Context::new(&key, self.now, &mut notifications);
        (context.spread, context.inbox, context.gone) = (act.spread, act.inbox, act.gone);
        let reply = act.request.as_ref().map(|request| self.state.step(request, &mut context));
        if reply.is_none() {
            self.state.tick(&mut context);
        }
        let Reply::Inspected(inspected) = self.state.step(&Request::Inspect, &mut context) else {
            panic!("every state can be inspected")
        };
        let state = &self.state;
        Seen {
            reply,
            notifications,
            inspected: *inspected,
            next_tick: state.next_tick(),
            lasts_until: state.lasts_until(),
            places: ids().map(|id| state.place(id)).collect(),
            holder: state.exclusive_holder(),
            last_fence: state.last_fence(),
            users: state.users(),
            is_idle: state.is_idle(),
            is_in_use: state.is_in_use(),
            has_waiters: state.has_waiters(),
        }
    }
}

/// A request at once, in the process of all waiters.
fn plain(request: Request) -> Act {
    let none = Duration::ZERO;
    Act { pause: none, back: none, spread: none, inbox: None, gone: &[], request: Some(request) }
}

fn any_acts() -> impl Strategy<Value = Vec<Act>> {
    (0..KINDS).prop_flat_map(|kind| acts(kind, 1..60))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// One state stays in memory, the other is stored and read before each request.
    #[test]
    fn stored_state_answers_like_the_original(acts in any_acts()) {
        let (mut original, mut stored) = (Machine::for_acts(&acts), Machine::for_acts(&acts));
        for act in &acts {
            let bytes = encode(&stored.state);
            stored.state = decode(&bytes).expect("what was stored can be read");
            prop_assert_eq!(&encode(&stored.state), &bytes, "reading changes nothing");
            prop_assert_eq!(&encode(&original.state), &bytes, "equal states have equal bytes");
            prop_assert_eq!(original.act(act), stored.act(act), "at {:?}", act);
        }
    }

    #[test]
    fn state_is_idle_when_it_says(acts in any_acts()) {
        let mut machine = Machine::for_acts(&acts);
        for act in &acts {
            let seen = machine.act(act);
            let until = seen.lasts_until;
            prop_assert!(!seen.is_in_use || !seen.is_idle, "an idle state is not in use");
            if until < Timestamp::NEVER {
                let mut later = Machine { state: machine.state.clone(), now: until };
                let tick = Act { request: None, ..act.clone() }.at_once();
                prop_assert!(later.act(&tick).is_idle, "after {:?}", act);
            }
        }
    }

    #[test]
    fn changed_bytes_do_no_harm(
        acts in any_acts(),
        later in any_acts(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut machine = Machine::for_acts(&acts);
        for act in &acts {
            machine.act(act);
        }
        let mut bytes = encode(&machine.state);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        use_read(&bytes, machine.now, &acts, &later);
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), acts in any_acts()) {
        use_read(&bytes, START, &acts, &[]);
    }
}

/// Uses the state that the bytes are, if they are one.
fn use_read(bytes: &[u8], now: Timestamp, acts: &[Act], more: &[Act]) {
    let Ok(state) = decode(bytes) else { return };
    let mut machine = Machine { state, now };
    for act in acts.iter().chain(more) {
        machine.act(act);
        encode(&machine.state);
    }
}

/// Of each request that is answered with a place in a queue.
#[test]
fn waiter_is_who_has_a_place() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut with_place, mut without) = (0, 0);
    for _ in 0..500 {
        let acts = any_acts().new_tree(&mut runner).expect("acts").current();
        let mut machine = Machine::for_acts(&acts);
        for act in &acts {
            let seen = machine.act(act);
            let waiter = act.request.as_ref().and_then(Request::waiter);
            if matches!(seen.reply, Some(Reply::Queued { .. })) {
                let id = waiter.expect("a request that may wait");
                if act.gone.contains(&id.inbox()) {
                    continue;
                }
                assert!(machine.state.place(id).is_some(), "{act:?}");
                with_place += 1;
            } else if waiter.is_none() {
                without += 1;
            }
        }
    }
    assert!(with_place > 100 && without > 100, "{with_place} {without}");
}

/// Random bytes rarely are the numbers that would overflow.
#[test]
fn greatest_numbers_do_not_overflow() {
    let nothing: Vec<u8> = Vec::new();
    // Variant, value, end, replies.
    let counter = postcard::to_stdvec(&(7_u32, i64::MAX, Timestamp::NEVER, &nothing)).unwrap();
    let mut counter = Machine { state: decode(&counter).unwrap(), now: START };
    let add = Request::Counter(counter::Request::Add { id: requests::id(0), by: 1 });
    assert_eq!(counter.act(&plain(add)).reply, Some(Reply::Conflict));
    // Variant, count, counted, end, seen, watchers, let through.
    let watchers = (&nothing, None::<Timestamp>);
    let latch = (6_u32, u64::MAX, u64::MAX, Timestamp::NEVER, &nothing, watchers, &nothing);
    let latch = postcard::to_stdvec(&latch).unwrap();
    let mut latch = Machine { state: decode(&latch).unwrap(), now: START };
    let count_down = Request::Latch(latch::Request::CountDown { id: requests::id(0), count: 1 });
    assert_eq!(latch.act(&plain(count_down)).reply, Some(Reply::Value(0)));
}

/// The tokens that were used are computed from the interval of the last request.
#[test]
fn limit_without_an_interval_stays_readable() {
    for debt in [0.0, 5.0, f64::MAX] {
        let (quota, reservations) = ((2_u32, 1_u64, 0_u64, u64::MAX), None::<()>);
        let limiter = (2_u32, (1_u32, START + Duration::from_secs(1), debt), quota, false, reservations);
        for wait in [None, Some(Wait { live: None, fair: true })] {
            let state = decode(&postcard::to_stdvec(&limiter).unwrap()).unwrap();
            let mut limiter = Machine { state, now: START };
            let (id, quota) = (requests::id(0), Quota::gcra(2, Duration::from_secs(3)));
            let take = rate_limiter::Request::Take { id, tokens: 1, quota, patience: Duration::ZERO, wait };
            limiter.act(&plain(Request::RateLimiter(take)));
            assert!(decode(&encode(&limiter.state)).is_ok(), "{debt}: {:?}", limiter.state);
        }
    }
}

/// They became negative, and a debt below zero is not read again.
#[test]
fn greatest_numbers_of_a_limit_stay_readable() {
    for (used, count) in [(u64::MAX - 100, 2_u64), (3, u64::MAX - 100), (u64::MAX, u64::MAX)] {
        let quota = (1_u32, count, 1_000_000_u64, u64::MAX);
        let limiter = postcard::to_stdvec(&(2_u32, (0_u32, START, used), quota, false, None::<()>)).unwrap();
        let mut limiter = Machine { state: decode(&limiter).unwrap(), now: START };
        for quota in
            [Quota::gcra(2, Duration::from_secs(3)), Quota::gcra(u64::MAX - 5, Duration::from_secs(3))]
        {
            let (id, patience, wait) = (requests::id(0), Duration::ZERO, None);
            let take = rate_limiter::Request::Take { id, tokens: 1, quota, patience, wait };
            limiter.act(&plain(Request::RateLimiter(take)));
            assert!(decode(&encode(&limiter.state)).is_ok(), "{used} of {count}: {:?}", limiter.state);
        }
    }
}

#[test]
fn debt_that_is_no_time_is_not_read() {
    let limiter = |debt: f64| {
        let quota = (2_u32, 1_u64, 0_u64, 1_000_000_u64);
        postcard::to_stdvec(&(2_u32, (1_u32, START, debt), quota, false, None::<()>)).unwrap()
    };
    assert!(decode(&limiter(1.0)).is_ok());
    for debt in [-1.0, f64::INFINITY, f64::NAN] {
        assert!(decode(&limiter(debt)).is_err(), "{debt}");
    }
}

/// A lock with an empty queue is like one that never had a queue.
#[test]
fn what_was_left_is_not_stored() {
    let wait = Some(Wait { live: Some(Duration::from_secs(30)), fair: true });
    let acquire = |number| HoldKind::Lock.acquire(requests::id(number), Duration::from_secs(10), wait);
    let mut machine = Machine::for_acts(&[plain(acquire(0))]);
    machine.act(&plain(acquire(0)));
    let before = encode(&machine.state);
    assert!(matches!(machine.act(&plain(acquire(1))).reply, Some(Reply::Queued { .. })));
    assert_ne!(encode(&machine.state), before);
    machine.act(&plain(HoldKind::Lock.cancel(requests::id(1), false)));
    assert_eq!(encode(&machine.state), before);
}
