//! Random requests to each primitive, at random times, in random processes.

use crate::{
    id::Id,
    primitives::{
        any::Request,
        barrier, counter, event, latch,
        parts::{hold_request::HoldRequest, idempotency::IdempotencyKey},
        protocol::Wait,
        rate_limiter::{self, Quota},
        record::{self, AfterCrash, Ask, Slots},
        semaphore::Permits,
        value::Value,
        watchdog,
    },
};
use proptest::{collection::SizeRange, prelude::*};
use std::time::Duration;

/// The number of primitives.
pub(super) const KINDS: u8 = 9;

/// Something that happens to a state, in one of three processes.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub(super) pause: Duration,
    /// How far the clock is set back.
    pub(super) back: Duration,
    pub(super) spread: Duration,
    pub(super) inbox: Option<u32>,
    pub(super) gone: &'static [u32],
    /// Nothing for a tick.
    pub(super) request: Option<Request>,
}

impl Act {
    pub(super) fn at_once(self) -> Self {
        Self { pause: Duration::ZERO, back: Duration::ZERO, ..self }
    }
}

/// An id of one of three processes.
pub(super) fn id(number: u8) -> Id {
    Id::from(u128::from(1 + number % 3) << 96 | u128::from(number) << 40)
}

pub(super) fn ids() -> impl Iterator<Item = Id> {
    (0..8).map(id)
}

fn millis(choices: &'static [u64]) -> impl Strategy<Value = Duration> {
    prop::sample::select(choices).prop_map(Duration::from_millis)
}

const PAUSES: &[u64] = &[0, 0, 0, 1, 50, 900, 2_000, 30_000, 61_000, 90_000_000];

fn lease() -> impl Strategy<Value = Duration> {
    prop_oneof![8 => millis(&[1, 100, 1_500, 60_000]), 1 => Just(Duration::MAX), 1 => Just(Duration::ZERO)]
}

fn wait() -> impl Strategy<Value = Option<Wait>> {
    let live = prop_oneof![1 => Just(None), 4 => millis(&[300, 30_000]).prop_map(Some)];
    let wait = (live, prop::bool::weighted(0.7)).prop_map(|(live, fair)| Wait { live, fair });
    prop::option::weighted(0.8, wait)
}

fn once() -> impl Strategy<Value = IdempotencyKey> {
    (20..24_u8, any::<bool>()).prop_map(|(number, retried)| IdempotencyKey { attempt: id(number), retried })
}

fn held<A: Clone + std::fmt::Debug>(ask: impl Strategy<Value = A>) -> impl Strategy<Value = HoldRequest<A>> {
    let some = || (0..8_u8).prop_map(id);
    // Two names of clients, and ids of attempts.
    let hold = || prop_oneof![3 => 0..8_u8, 1 => 30..32_u8].prop_map(id);
    let once = || prop::option::weighted(0.3, once());
    let rarely = || prop::bool::weighted(0.2);
    prop_oneof![
        8 => (some(), lease(), wait(), ask)
            .prop_map(|(id, lease, wait, ask)| HoldRequest::Acquire { id, lease, wait, ask }),
        2 => (hold(), lease(), once()).prop_map(|(id, lease, once)| HoldRequest::Renew { id, lease, once }),
        3 => (hold(), rarely(), once())
            .prop_map(|(id, tombstone, once)| HoldRequest::Release { id, tombstone, once }),
        2 => (some(), rarely()).prop_map(|(id, tombstone)| HoldRequest::Cancel { id, tombstone }),
        1 => (prop::option::of(some()), any::<u64>()).prop_map(|(of, up_to)| HoldRequest::Evict { of, up_to }),
    ]
}

fn name() -> impl Strategy<Value = Option<Id>> {
    prop::option::weighted(0.2, (30..32_u8).prop_map(id))
}

fn lock() -> impl Strategy<Value = Request> {
    held(name()).prop_map(Request::Lock)
}

fn semaphore() -> impl Strategy<Value = Request> {
    let named = (0..6_u64, 1..4_u64, name());
    let ask = prop_oneof![
        8 => named.prop_map(|(size, permits, name)| (size, permits, name)),
        1 => (any::<u64>(), any::<u64>(), name()),
    ];
    let request = held(ask.prop_map(|(size, permits, name)| {
        let key = name.unwrap_or(Id::ZERO);
        Permits { size, permits, key }
    }));
    request.prop_map(|mut request| {
        if let HoldRequest::Acquire { id, ask, .. } = &mut request
            && ask.key == Id::ZERO
        {
            ask.key = *id;
        }
        Request::Semaphore(request)
    })
}

fn rate_limiter() -> impl Strategy<Value = Request> {
    let (size, interval) = (0..5_u64, millis(&[1, 100, 1_000, 60_000]));
    let quota = (size, interval, 0..4_u8).prop_map(|(size, interval, kind)| match kind {
        0 => Quota::fixed_window(size, interval),
        1 => Quota::token_bucket(size, interval),
        2 => Quota::gcra(size, interval),
        _ => Quota::gcra(size, interval).burst(2),
    });
    let quota = prop_oneof![6 => Just(Quota::token_bucket(2, Duration::from_secs(1))), 4 => quota];
    let tokens = prop_oneof![9 => 1..4_u64, 1 => any::<u64>()];
    let id = || (0..8_u8).prop_map(id);
    prop_oneof![
        5 => (id(), tokens, quota, lease(), wait()).prop_map(|(id, tokens, quota, patience, wait)| {
            rate_limiter::Request::Take { id, tokens, quota, patience, wait }
        }),
        1 => (id(), any::<bool>()).prop_map(|(id, tombstone)| rate_limiter::Request::Cancel { id, tombstone }),
    ]
    .prop_map(Request::RateLimiter)
}

fn event() -> impl Strategy<Value = Request> {
    let id = || (0..8_u8).prop_map(id);
    prop_oneof![
        5 => (id(), wait()).prop_map(|(id, wait)| event::Request::Wait { id, wait }),
        2 => (once(), lease(), 0..3_u8).prop_map(|(once, keep, text)| {
            event::Request::Send { once, message: format!("message {text}").into(), keep }
        }),
        1 => once().prop_map(|once| event::Request::Reset { once }),
        1 => id().prop_map(|id| event::Request::Cancel { id }),
    ]
    .prop_map(Request::Event)
}

fn watchdog() -> impl Strategy<Value = Request> {
    let id = || (0..8_u8).prop_map(id);
    prop_oneof![
        3 => (id(), wait()).prop_map(|(id, wait)| watchdog::Request::Wait { id, wait }),
        2 => (once(), lease()).prop_map(|(once, expires)| watchdog::Request::Kick { once, expires }),
        1 => id().prop_map(|id| watchdog::Request::Cancel { id }),
    ]
    .prop_map(Request::Watchdog)
}

fn barrier() -> impl Strategy<Value = Request> {
    let id = || (0..8_u8).prop_map(id);
    prop_oneof![
        5 => (id(), 0..5_u64, wait(), prop::bool::weighted(0.1)).prop_map(|(id, parties, wait, once)| {
            barrier::Request::Arrive { id, parties, wait, once }
        }),
        1 => (id(), any::<bool>()).prop_map(|(id, tombstone)| barrier::Request::Cancel { id, tombstone }),
    ]
    .prop_map(Request::Barrier)
}

fn latch() -> impl Strategy<Value = Request> {
    let id = || (0..8_u8).prop_map(id);
    prop_oneof![
        3 => (id(), 0..5_u64, wait()).prop_map(|(id, count, wait)| latch::Request::Wait { id, count, wait }),
        2 => (id(), 0..5_u64).prop_map(|(id, count)| latch::Request::CountDown { id, count }),
        1 => id().prop_map(|id| latch::Request::Cancel { id }),
    ]
    .prop_map(Request::Latch)
}

fn counter() -> impl Strategy<Value = Request> {
    let amount = || prop_oneof![6 => -3..4_i64, 1 => any::<i64>(), 1 => Just(counter::MAX_VALUE)];
    prop_oneof![
        4 => ((0..8_u8).prop_map(id), amount()).prop_map(|(id, by)| counter::Request::Add { id, by }),
        1 => (once(), -counter::MAX_VALUE..=counter::MAX_VALUE)
            .prop_map(|(once, value)| counter::Request::Set { once, value }),
        1 => Just(counter::Request::Get),
    ]
    .prop_map(Request::Counter)
}

fn record() -> impl Strategy<Value = Request> {
    let slots = (millis(&[1, 1_000, 60_000]), millis(&[0, 300]), millis(&[0, 1, 30_000]))
        .prop_map(|(every, from, early)| Slots { every, from, early });
    let digest = prop::option::weighted(0.3, (40..42_u8).prop_map(id));
    let refuse = lease().prop_map(|keep| AfterCrash::Refuse { keep });
    let after_crash = prop_oneof![2 => Just(AfterCrash::RunAgain), 1 => refuse];
    let ask = (prop::option::of(slots), digest, after_crash).prop_map(|(slots, digest, after_crash)| Ask {
        slots,
        digest,
        after_crash,
    });
    let value = prop::collection::vec(any::<u8>(), 0..20);
    let finish = ((0..8_u8).prop_map(id), value, lease()).prop_map(|(id, value, keep)| {
        let value = Value::new(value).expect("a short value");
        record::Request::Finish { id, value, keep }
    });
    prop_oneof![4 => held(ask).prop_map(record::Request::Hold), 1 => finish].prop_map(Request::Record)
}

fn request(kind: u8) -> BoxedStrategy<Request> {
    match kind {
        0 => lock().boxed(),
        1 => semaphore().boxed(),
        2 => rate_limiter().boxed(),
        3 => event().boxed(),
        4 => watchdog().boxed(),
        5 => barrier().boxed(),
        6 => latch().boxed(),
        7 => counter().boxed(),
        _ => record().boxed(),
    }
}

/// Requests and ticks at the states of one kind. The first is a request that creates a state.
pub(super) fn acts(kind: u8, count: impl Into<SizeRange>) -> impl Strategy<Value = Vec<Act>> {
    let back = prop_oneof![19 => Just(Duration::ZERO), 1 => millis(&[1, 3_000])];
    let inbox = prop::sample::select(vec![None, Some(1), Some(1), Some(2)]);
    let gone = prop::sample::select(vec![&[][..], &[3], &[2, 3]]);
    let delete = once().prop_map(Request::Delete);
    let later = prop_oneof![8 => request(kind).prop_map(Some), 1 => Just(None), 1 => delete.prop_map(Some)];
    let around = (millis(PAUSES), back, millis(&[0, 0, 5]), inbox, gone);
    let act = (around, later).prop_map(|((pause, back, spread, inbox, gone), request)| Act {
        pause,
        back,
        spread,
        inbox,
        gone,
        request,
    });
    (request(kind), prop::collection::vec(act, count)).prop_map(|(first, mut acts)| {
        acts[0].request = Some(first);
        acts
    })
}
