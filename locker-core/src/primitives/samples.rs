//! Requests to every primitive, for the fuzz targets.

use super::{
    any::Request,
    barrier, counter, event, latch,
    parts::{hold_request::HoldRequest, idempotency::IdempotencyKey},
    protocol::Wait,
    rate_limiter::{self, Quota},
    record::{self, AfterCrash, Ask, Slots},
    semaphore::Permits,
    value::Value,
    watchdog,
};
use crate::id::Id;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(10);
const WAIT: Option<Wait> = Some(Wait { live: Some(Duration::from_secs(30)), fair: true });
const UNFAIR: Option<Wait> = Some(Wait { live: None, fair: false });

/// The ids of a request: of the attempt, and of a change that takes effect once.
#[derive(Clone, Copy)]
struct Ids {
    id: Id,
    once: IdempotencyKey,
}

/// Returns requests of each kind, with an id that the states in `fixtures/states` have.
#[must_use]
pub fn requests() -> Vec<Request> {
    let ids = Ids {
        id: Id::from(1 << 96),
        once: IdempotencyKey { attempt: Id::from(2 << 96 | 1 << 40), retried: true },
    };
    let id = ids.id;
    let permits = Permits { size: 2, permits: 1, key: id };
    let mut all = vec![Request::Inspect, Request::Delete(ids.once)];
    all.extend(held(ids, None).map(Request::Lock));
    all.extend(held(ids, Some(id)).map(Request::Lock));
    all.extend(held(ids, permits).map(Request::Semaphore));
    all.extend(limits(id).map(Request::RateLimiter));
    all.extend(events(ids));
    all.extend(meetings(id));
    all.extend(records(ids).map(Request::Record));
    all.push(Request::Counter(counter::Request::Add { id, by: 1 }));
    all.push(Request::Counter(counter::Request::Set { once: ids.once, value: -7 }));
    all.push(Request::Counter(counter::Request::Get));
    all
}

fn held<A: Copy>(Ids { id, once }: Ids, ask: A) -> [HoldRequest<A>; 9] {
    let acquire = |wait| HoldRequest::Acquire { id, lease: LEASE, wait, ask };
    let renew = |once| HoldRequest::Renew { id, lease: LEASE, once };
    let release = |once: Option<_>| HoldRequest::Release { id, tombstone: once.is_none(), once };
    [
        acquire(None),
        acquire(WAIT),
        acquire(UNFAIR),
        renew(None),
        renew(Some(once)),
        release(None),
        release(Some(once)),
        HoldRequest::Cancel { id, tombstone: true },
        HoldRequest::Evict { of: None, up_to: u64::MAX },
    ]
}

fn records(ids: Ids) -> impl Iterator<Item = record::Request> {
    let slots = Some(Slots { from: Duration::from_secs(3), ..Slots::new(LEASE) });
    let kept = Ask { slots: None, digest: None, after_crash: AfterCrash::RunAgain };
    let refused = Ask { slots, digest: Some(ids.id), after_crash: AfterCrash::Refuse { keep: LEASE } };
    let value = Value::new("a result".as_bytes()).unwrap_or_default();
    let finish = record::Request::Finish { id: ids.id, value, keep: LEASE };
    let asks = [kept, Ask { slots, ..kept }, refused].into_iter();
    asks.flat_map(move |ask| held(ids, ask)).map(record::Request::Hold).chain([finish])
}

fn limits(id: Id) -> [rate_limiter::Request; 4] {
    let (count, interval) = (2, Duration::from_secs(3));
    let take = |quota, wait| rate_limiter::Request::Take { id, tokens: 1, quota, patience: LEASE, wait };
    [
        take(Quota::gcra(count, interval), WAIT),
        take(Quota::token_bucket(count, interval), None),
        take(Quota::fixed_window(count, interval), UNFAIR),
        rate_limiter::Request::Cancel { id, tombstone: true },
    ]
}

fn events(Ids { id, once }: Ids) -> [Request; 7] {
    [
        Request::Event(event::Request::Wait { id, wait: WAIT }),
        Request::Event(event::Request::Send { once, message: "a message".into(), keep: LEASE }),
        Request::Event(event::Request::Reset { once }),
        Request::Event(event::Request::Cancel { id }),
        Request::Watchdog(watchdog::Request::Wait { id, wait: WAIT }),
        Request::Watchdog(watchdog::Request::Kick { once, expires: LEASE }),
        Request::Watchdog(watchdog::Request::Cancel { id }),
    ]
}

fn meetings(id: Id) -> [Request; 5] {
    [
        Request::Barrier(barrier::Request::Arrive { id, parties: 2, wait: WAIT, once: true }),
        Request::Barrier(barrier::Request::Cancel { id, tombstone: true }),
        Request::Latch(latch::Request::Wait { id, count: 3, wait: WAIT }),
        Request::Latch(latch::Request::CountDown { id, count: 1 }),
        Request::Latch(latch::Request::Cancel { id }),
    ]
}
