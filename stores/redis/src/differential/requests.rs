//! Random requests for each primitive.

use fastrand::Rng;
use locker_core::{
    clock::Timestamp,
    id::Id,
    primitives::{
        HoldRequest, IdempotencyKey, Request, Value, Wait, barrier, counter, event, latch,
        rate_limiter::{self, Quota},
        record::{self, AfterCrash, Ask, Slots},
        semaphore::Permits,
        watchdog,
    },
};
use std::time::Duration;

/// The time of the first request.
pub(super) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// Draws a request of one of these ids.
pub(super) type Draw = fn(&[Id], &mut Rng) -> Request;

pub(super) fn milliseconds(rng: &mut Rng, choices: &[u64]) -> Duration {
    Duration::from_millis(choices[rng.usize(..choices.len())])
}

fn one_of<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

fn wait(rng: &mut Rng) -> Option<Wait> {
    let live = Some(milliseconds(rng, &[1, 5, 50, 1_000, 30_000, 200_000]));
    (rng.u8(..5) > 0).then(|| Wait { live, fair: rng.u8(..4) > 0 })
}

fn once(attempt: Id, rng: &mut Rng) -> IdempotencyKey {
    IdempotencyKey { attempt, retried: rng.u8(..4) == 0 }
}

fn holding<A>(ids: &[Id], rng: &mut Rng, ask: impl Fn(Id, &mut Rng) -> A, names: &[Id]) -> HoldRequest<A> {
    let (id, name) = (one_of(rng, ids), one_of(rng, names));
    let lease = milliseconds(rng, &[1, 2, 5, 50, 1_000, 2_500, 10_000]);
    match rng.u8(..11) {
        0..=4 => HoldRequest::Acquire { id, lease, wait: wait(rng), ask: ask(id, rng) },
        5 | 6 => HoldRequest::Renew { id: name, lease, once: None },
        7 | 8 => HoldRequest::Release { id: name, tombstone: rng.u8(..8) == 0, once: None },
        9 => HoldRequest::Cancel { id, tombstone: rng.u8(..8) == 0 },
        _ => HoldRequest::Evict { of: rng.bool().then_some(id), up_to: evicted(rng) },
    }
}

/// Draws a fence that covers no holds, some or all. Fences follow the clock, which runs for some hours.
fn evicted(rng: &mut Rng) -> u64 {
    const HOURS: u64 = 5 * 3600 * 1_000_000;
    let some = START.as_micros() + rng.u64(..HOURS);
    one_of(rng, &[0, some, u64::MAX, u64::MAX])
}

pub(super) fn lock(ids: &[Id], rng: &mut Rng) -> Request {
    Request::Lock(holding(ids, rng, |_, _| None, ids))
}

/// Half of the ids acquire under their own names, the others under one of two names that clients have chosen.
pub(super) fn named_lock(ids: &[Id], rng: &mut Rng) -> Request {
    let chosen = [Id::of("a"), Id::of("b")];
    let names: Vec<Id> = ids.iter().copied().chain(chosen).collect();
    let has_name = |id: Id| ids.iter().position(|each| *each == id).is_some_and(|place| place % 2 == 1);
    // A candidate of an election is its own name.
    let ask = |id: Id, rng: &mut Rng| Some(if has_name(id) { one_of(rng, &chosen) } else { id });
    let mut request = holding(ids, rng, ask, &names);
    match &mut request {
        HoldRequest::Renew { once, .. } => {
            *once = rng.bool().then(|| self::once(Id::from(rng.u128(1..4)), rng));
        }
        HoldRequest::Release { once, tombstone: false, .. } => {
            *once = rng.bool().then(|| self::once(Id::from(rng.u128(1..4)), rng));
        }
        HoldRequest::Evict { of: Some(of), .. } => *of = one_of(rng, &names),
        _ => {}
    }
    Request::Lock(request)
}

/// Half of the ids acquire under their own names, the others under one of two names that clients have chosen.
pub(super) fn semaphore(ids: &[Id], rng: &mut Rng) -> Request {
    // Of two processes.
    let in_process = |id: &Id| Id::from(u128::from(*id) << 32 >> 32 | (1 + u128::from(*id) % 2) << 96);
    let ids: &[Id] = &ids.iter().map(in_process).collect::<Vec<_>>();
    let chosen = [Id::of("a"), Id::of("b")];
    let names: Vec<Id> = ids.iter().copied().chain(chosen).collect();
    let ask = |id: Id, rng: &mut Rng| {
        let size = one_of(rng, &[0, 1, 2, 2, 2, 3, 5]);
        let permits = one_of(rng, &[1, 1, 1, 2, 3]);
        // A request for more permits than there are is refused for a minute.
        let most = if size == 0 || rng.u8(..16) == 0 { permits } else { size };
        let key = if ids.iter().position(|each| *each == id).is_some_and(|place| place % 2 == 0) {
            id
        } else {
            one_of(rng, &chosen)
        };
        Permits { size, permits: permits.min(most), key }
    };
    let mut request = holding(ids, rng, ask, &names);
    if let HoldRequest::Acquire { lease, .. } = &mut request
        && rng.u8(..8) == 0
    {
        *lease = Duration::MAX;
    }
    if let HoldRequest::Renew { once, .. } | HoldRequest::Release { once, .. } = &mut request {
        *once = rng.bool().then(|| self::once(Id::from(rng.u128(1..4)), rng));
    }
    Request::Semaphore(request)
}

pub(super) fn rate_limiter(ids: &[Id], rng: &mut Rng) -> Request {
    // Most requests are sent once. The other callers send them again, or give up.
    let id = if rng.bool() { Id::from(rng.u128(..)) } else { one_of(rng, ids) };
    if rng.u8(..6) == 0 {
        let tombstone = rng.u8(..8) == 0;
        return Request::RateLimiter(rate_limiter::Request::Cancel { id: one_of(rng, ids), tombstone });
    }
    let (size, interval) =
        (one_of(rng, &[3, 3, 3, 3, 1, 2, 7, 0]), milliseconds(rng, &[50, 50, 50, 7, 1_000]));
    let quota = match rng.u8(..12) {
        0 => Quota::fixed_window(size, interval),
        1 => Quota::token_bucket(size, interval),
        2 => Quota::gcra(size, interval),
        3 => Quota::gcra(size, interval).burst(one_of(rng, &[1, 2, 5])),
        _ => match ids.len() % 3 {
            0 => Quota::fixed_window(3, Duration::from_millis(50)),
            1 => Quota::token_bucket(3, Duration::from_millis(50)),
            _ => Quota::gcra(3, Duration::from_millis(50)).burst(2),
        },
    };
    let patience = if rng.u8(..4) == 0 { Duration::MAX } else { milliseconds(rng, &[0, 10, 60, 200, 5_000]) };
    let tokens = one_of(rng, &[1, 1, 1, 2, 3]);
    Request::RateLimiter(rate_limiter::Request::Take { id, tokens, quota, patience, wait: wait(rng) })
}

/// Reservations are hours away, so that not all waiters move up after a cancellation.
pub(super) fn rate_limiter_with_a_long_queue(ids: &[Id], rng: &mut Rng) -> Request {
    let id = Id::from(rng.u128(1..200));
    if rng.u8(..3) == 0 {
        return Request::RateLimiter(rate_limiter::Request::Cancel { id, tombstone: rng.u8(..20) == 0 });
    }
    let hour = Duration::from_hours(1);
    let quota = match (rng.u8(..150), ids.len() % 3) {
        (0, _) => Quota::token_bucket(one_of(rng, &[0, 2]), hour),
        (_, 0) => Quota::fixed_window(3, hour),
        (_, 1) => Quota::token_bucket(3, hour),
        _ => Quota::gcra(3, hour).burst(2),
    };
    let patience = if rng.u8(..20) == 0 { hour } else { Duration::MAX };
    let tokens = one_of(rng, &[1, 1, 2]);
    Request::RateLimiter(rate_limiter::Request::Take { id, tokens, quota, patience, wait: wait(rng) })
}

/// The largest numbers that the settings allow.
pub(super) fn rate_limiter_with_large_numbers(ids: &[Id], rng: &mut Rng) -> Request {
    const MOST: u64 = (1 << 53) - 1;
    let day = Duration::from_hours(24);
    let id = if rng.bool() { Id::from(rng.u128(..)) } else { one_of(rng, ids) };
    if rng.u8(..6) == 0 {
        return Request::RateLimiter(rate_limiter::Request::Cancel { id, tombstone: false });
    }
    let count = one_of(rng, &[1, 1, 10, 1 << 40, MOST, 0]);
    let interval = one_of(rng, &[Duration::from_micros(1), day, 3_650 * day]);
    let quota = match rng.u8(..20) {
        0 => Quota::fixed_window(count, interval),
        1 => Quota::token_bucket(count, interval),
        2 => Quota::gcra(count, interval),
        3 => Quota::gcra(count, interval).burst(one_of(rng, &[7, 1 << 52, MOST])),
        _ => match ids.len() % 3 {
            0 => Quota::token_bucket(MOST, 3_650 * day),
            1 => Quota::gcra(1, 3_650 * day).burst(1_000_000),
            _ => Quota::gcra(1, day).burst(MOST),
        },
    };
    let tokens = one_of(rng, &[1, 1, 1_000_000, 1 << 40, MOST / 2, MOST]);
    let patience = one_of(rng, &[Duration::ZERO, day, 3_650 * day, Duration::MAX]);
    Request::RateLimiter(rate_limiter::Request::Take { id, tokens, quota, patience, wait: wait(rng) })
}

/// Each caller sends its request once.
pub(super) fn rate_limiter_once_each(ids: &[Id], rng: &mut Rng) -> Request {
    let (one, interval) = (Id::from(rng.u128(..)), milliseconds(rng, &[50, 50, 50, 900]));
    let quota = match ids.len() % 3 {
        0 => Quota::fixed_window(3, interval),
        1 => Quota::token_bucket(3, interval),
        _ => Quota::gcra(3, interval).burst(2),
    };
    let (tokens, patience) = (one_of(rng, &[1, 1, 2]), milliseconds(rng, &[0, 10, 60, 200, 5_000]));
    Request::RateLimiter(rate_limiter::Request::Take { id: one, tokens, quota, patience, wait: wait(rng) })
}

/// Most requests are admitted or refused at once.
pub(super) fn rate_limiter_without_a_queue(ids: &[Id], rng: &mut Rng) -> Request {
    let mut request = rate_limiter_once_each(ids, rng);
    if let Request::RateLimiter(rate_limiter::Request::Take { patience, .. }) = &mut request {
        let choices: &[u64] = if rng.u8(..50) == 0 { &[10, 60, 200] } else { &[0, 0, 0, 1] };
        *patience = milliseconds(rng, choices);
    }
    request
}

pub(super) fn event(ids: &[Id], rng: &mut Rng) -> Request {
    const MESSAGES: [&str; 4] = ["", "x", "two words\n", "\u{e9}"];
    let number = rng.usize(..ids.len());
    let id = ids[number];
    Request::Event(match rng.u8(..8) {
        0..=3 => event::Request::Wait { id, wait: wait(rng) },
        4 => event::Request::Send {
            once: once(id, rng),
            message: MESSAGES[number % MESSAGES.len()].into(),
            keep: milliseconds(rng, &[1, 50, 1_000, 60_000]),
        },
        5 => event::Request::Reset { once: once(Id::from(rng.u128(..4)), rng) },
        _ => event::Request::Cancel { id },
    })
}

pub(super) fn watchdog(ids: &[Id], rng: &mut Rng) -> Request {
    let id = one_of(rng, ids);
    Request::Watchdog(match rng.u8(..8) {
        0..=4 => watchdog::Request::Wait { id, wait: wait(rng) },
        5 | 6 => watchdog::Request::Kick {
            once: once(if rng.bool() { id } else { Id::from(rng.u128(..)) }, rng),
            expires: milliseconds(rng, &[1, 5, 50, 1_000, 60_000]),
        },
        _ => watchdog::Request::Cancel { id },
    })
}

pub(super) fn barrier(ids: &[Id], rng: &mut Rng) -> Request {
    let id = if rng.u8(..4) == 0 { Id::from(rng.u128(..)) } else { one_of(rng, ids) };
    if rng.u8(..6) == 0 {
        return Request::Barrier(barrier::Request::Cancel { id, tombstone: rng.bool() });
    }
    let (parties, once) = (one_of(rng, &[1, 2, 3, 3, 3]), rng.u8(..8) == 0);
    Request::Barrier(barrier::Request::Arrive { id, parties, wait: wait(rng), once })
}

pub(super) fn latch(ids: &[Id], rng: &mut Rng) -> Request {
    let (id, count) = (one_of(rng, ids), one_of(rng, &[0, 1, 3, 5, 5, 100]));
    Request::Latch(match rng.u8(..6) {
        0 => latch::Request::Cancel { id },
        1..=3 => latch::Request::Wait { id, count, wait: wait(rng) },
        _ => latch::Request::CountDown { id, count },
    })
}

pub(super) fn counter(ids: &[Id], rng: &mut Rng) -> Request {
    const MOST: i64 = counter::MAX_VALUE;
    let id = if rng.bool() { Id::from(rng.u128(..)) } else { one_of(rng, ids) };
    Request::Counter(match rng.u8(..6) {
        0 => counter::Request::Get,
        1 => counter::Request::Set { once: once(id, rng), value: one_of(rng, &[0, 7, -MOST, MOST]) },
        _ => counter::Request::Add {
            id,
            by: one_of(rng, &[1, -1, 5, MOST, -MOST, MOST + 1, -MOST - 1, MOST + 4, i64::MIN, i64::MAX]),
        },
    })
}

/// Half of the keys have slots.
pub(super) fn record(ids: &[Id], rng: &mut Rng) -> Request {
    let has_slots = ids.len().is_multiple_of(2);
    let ask = |_: Id, rng: &mut Rng| {
        let every = milliseconds(rng, &[50, 900, 2_000, 2_000]);
        let (from, early) = (milliseconds(rng, &[0, 0, 7]), milliseconds(rng, &[0, 5, 200]));
        let slots = (has_slots != (rng.u8(..20) == 0)).then_some(Slots { every, from, early });
        let digest = one_of(rng, &[None, Some(Id::of("a")), Some(Id::of("a")), Some(Id::of("b"))]);
        let refuse = AfterCrash::Refuse { keep: milliseconds(rng, &[1, 50, 4_000, 100_000]) };
        Ask { slots, digest, after_crash: one_of(rng, &[AfterCrash::RunAgain, AfterCrash::RunAgain, refuse]) }
    };
    if rng.u8(..5) == 0 {
        let texts: [&[u8]; 3] = [b"", b"a result", b"\0 bytes: 1;\n\xff"];
        let value = Value::new(one_of(rng, &texts)).expect("a value");
        let keep = milliseconds(rng, &[0, 0, 1, 50, 4_000, 100_000]);
        return Request::Record(record::Request::Finish { id: one_of(rng, ids), value, keep });
    }
    let mut request = holding(ids, rng, ask, ids);
    if let HoldRequest::Acquire { lease, .. } = &mut request
        && rng.u8(..16) == 0
    {
        *lease = Duration::MAX;
    }
    if let HoldRequest::Renew { once, .. } | HoldRequest::Release { once, .. } = &mut request {
        *once = (rng.u8(..4) == 0).then(|| self::once(Id::from(rng.u128(1..4)), rng));
    }
    Request::Record(record::Request::Hold(request))
}

/// Many callers share runs whose results fill the room that there is for them.
pub(super) fn record_with_large_results(ids: &[Id], rng: &mut Rng) -> Request {
    let id = one_of(rng, ids);
    let lease = Duration::from_mins(1);
    if rng.u8(..4) == 0 {
        let value = Value::new(vec![7; one_of(rng, &[200_000, 200_000, 1 << 19])]).expect("a value");
        return Request::Record(record::Request::Finish { id, value, keep: Duration::ZERO });
    }
    let ask = Ask { slots: None, digest: None, after_crash: AfterCrash::RunAgain };
    Request::Record(record::Request::Hold(HoldRequest::Acquire { id, lease, wait: wait(rng), ask }))
}
