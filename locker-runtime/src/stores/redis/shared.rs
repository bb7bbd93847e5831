//! Every primitive but the lock: its requests as scripts, and their answers.

use super::{
    Redis,
    lock::milliseconds,
    script::{Answer, Argument, Batch, Invocation, Script},
};
use crate::{
    error::Result,
    id::Id,
    key::Key,
    primitives::{
        self, HoldRequest, IdempotencyKey, Reply, Request, Wait, barrier, counter, event,
        inspection::{Held, Inspection},
        latch,
        rate_limiter::{self, Algorithm, NO_BURST, Quota},
        semaphore, watchdog,
    },
};
use std::{sync::Arc, time::Duration};

const HELPERS: &[&str] = &["q", "w", "a", "b", "z", "f"];

macro_rules! scripts {
    ($($name:ident = $kind:literal: $(first $($first:literal)+,)? $($file:literal),+;)+) => {
        $(static $name: Script = Script::with_first(
            HELPERS,
            concat!($($(include_str!($first)),+)?),
            &[
                concat!("local KIND = '", $kind, "'\n"),
                include_str!("shared.lua"),
                $(include_str!($file)),+
            ],
        );)+

        /// All scripts of these primitives, and those about any kind.
        pub(super) fn scripts() -> impl Iterator<Item = &'static Script> {
            [$(&$name,)+ &ANY, RATE_MANY.script()].into_iter()
        }

        /// The script of the primitive that calls itself `kind` in its key.
        fn of_kind(kind: &str) -> Option<&'static Script> {
            match kind {
                $($kind => Some(&$name),)+
                _ => None,
            }
        }
    };
}

scripts! {
    SEMAPHORE = "semaphore": "semaphore.lua";
    RATE = "rate": first "rate_limiter_take.lua" "rate_limiter_free.lua", "rate_limiter.lua";
    EVENT = "event": "watchers.lua", "remembered.lua", "event.lua";
    WATCHDOG = "watchdog": "watchers.lua", "watchdog.lua";
    BARRIER = "barrier": "watchers.lua", "barrier.lua";
    LATCH = "latch": "watchers.lua", "latch.lua";
    COUNTER = "counter": "remembered.lua", "counter.lua";
}

static RATE_MANY: Batch = Batch::new(
    &[include_str!("rate_limiter_take.lua"), include_str!("rate_limiter_many.lua")],
    &[0],
    &[4, 5, 6],
);
static ANY: Script = Script::new(&["q", "w", "a", "b", "y", "f", "x:", "p"], &[include_str!("any.lua")]);

/// The call that carries `request` out; `None` for the lock and what is about any kind.
pub(super) fn invocation(key: &Key, request: &Request, channel: &Arc<str>) -> Option<Invocation> {
    let start = Start { key, channel };
    Some(match request {
        Request::Semaphore(request) => of_semaphore(request, start),
        Request::RateLimiter(request) => of_rate_limiter(request, start),
        Request::Event(request) => of_event(request, start),
        Request::Watchdog(request) => of_watchdog(request, start),
        Request::Barrier(request) => of_barrier(request, start),
        Request::Latch(request) => of_latch(request, start),
        Request::Counter(request) => of_counter(request, start),
        Request::Lock(_) | Request::Inspect | Request::Delete(_) => return None,
    })
}

/// Asks what lives at a key, and how it looks if that is a lock.
pub(super) fn kind_of(key: &Key) -> Invocation {
    ANY.on(key).argument(Id::ZERO).argument("kind")
}

pub(super) fn delete(key: &Key, once: IdempotencyKey) -> Invocation {
    ANY.on(key).argument(once.attempt).argument("delete").argument(once.retried)
}

/// Asks how what lives at a key looks; `None` when it is of no known kind.
pub(super) fn inspect(key: &Key, kind: &str) -> Option<Invocation> {
    of_kind(kind)
        .map(|script| Start { key, channel: &Arc::from("-") }.begin(script, "inspect", Id::from(0), None))
}

/// What the calls of one key have in common.
#[derive(Clone, Copy)]
struct Start<'a> {
    key: &'a Key,
    channel: &'a Arc<str>,
}

impl Start<'_> {
    fn begin(
        self,
        script: &'static Script,
        operation: &'static str,
        id: Id,
        wait: Option<Wait>,
    ) -> Invocation {
        let Self { key, channel } = self;
        let call = script.on(key).argument(operation).argument(id).argument(Arc::clone(channel));
        match wait {
            Some(wait) => call.argument(milliseconds(wait.live.unwrap_or(Redis::WAITER_TTL))),
            None => call.argument("no"),
        }
    }
}

fn of_semaphore(request: &semaphore::Request, start: Start<'_>) -> Invocation {
    let begin = |operation, id, wait| start.begin(&SEMAPHORE, operation, id, wait);
    match *request {
        HoldRequest::Acquire { id, lease, wait, ask } => begin("acquire", id, wait)
            .argument(until(lease))
            .argument(if wait.is_none_or(|wait| wait.fair) { "fair" } else { "unfair" })
            .argument(ask.size.min(semaphore::MAX_SIZE))
            .argument(ask.permits.min(semaphore::MAX_SIZE))
            .argument(ask.key),
        HoldRequest::Renew { id, lease, once: None } => begin("renew", id, None).argument(until(lease)),
        HoldRequest::Renew { id, lease, once: Some(once) } => {
            by_name(begin("renew", id, None).argument(until(lease)), 3, false, once)
        }
        HoldRequest::Release { id, tombstone, once: None } => {
            failing(begin("release", id, None), 5, tombstone)
        }
        HoldRequest::Release { id, tombstone, once: Some(once) } => {
            by_name(begin("release", id, None), 4, tombstone, once)
        }
        HoldRequest::Cancel { id, tombstone } => failing(begin("cancel", id, None), 5, tombstone),
        HoldRequest::Evict { of, up_to } => begin("evict", of.unwrap_or(Id::ZERO), None).argument(up_to),
    }
}

/// The arguments from number 5 on that this operation has not, then whether the id is to be refused.
fn failing(call: Invocation, missing: usize, tombstone: bool) -> Invocation {
    without(call, missing).argument(tombstone)
}

/// The same with the attempt before the end, and whether that is to be refused behind it.
fn by_name(call: Invocation, missing: usize, tombstone: bool, once: IdempotencyKey) -> Invocation {
    let call = without(call, missing).argument(once.attempt).argument(tombstone);
    if once.retried { call.argument(true) } else { call }
}

fn without(call: Invocation, missing: usize) -> Invocation {
    (0..missing).fold(call, |call, _| call.argument("-"))
}

fn of_rate_limiter(request: &rate_limiter::Request, start: Start<'_>) -> Invocation {
    match *request {
        rate_limiter::Request::Take { id, tokens, quota, patience, wait } => {
            let call = start.begin(&RATE, "take", id, wait).argument(tokens).argument(words(quota));
            let patience = match u64::try_from(patience.as_micros()) {
                Ok(patience) => patience.into(),
                Err(_) => Argument::from("inf"),
            };
            call.argument(patience).together(&RATE_MANY)
        }
        rate_limiter::Request::Cancel { id, tombstone } => {
            failing(start.begin(&RATE, "cancel", id, None), 3, tombstone)
        }
    }
}

/// The settings of a limiter as the script knows them.
fn words(Quota { algorithm, count, interval, burst }: Quota) -> Arc<str> {
    let letter = match algorithm {
        Algorithm::FixedWindow => 'w',
        Algorithm::TokenBucket => 'b',
        Algorithm::Gcra => 'g',
    };
    if burst == NO_BURST {
        format!("{letter} {count} {interval} -").into()
    } else {
        format!("{letter} {count} {interval} {burst}").into()
    }
}

fn of_event(request: &event::Request, start: Start<'_>) -> Invocation {
    let begin = |operation, id, wait| start.begin(&EVENT, operation, id, wait);
    match request {
        event::Request::Wait { id, wait } => begin("wait", *id, *wait),
        event::Request::Send { once, message, keep } => begin("send", once.attempt, None)
            .argument(Arc::clone(message))
            .argument(milliseconds(*keep))
            .argument(once.retried),
        event::Request::Reset { once } => failing(begin("reset", once.attempt, None), 2, once.retried),
        event::Request::Cancel { id } => begin("cancel", *id, None),
    }
}

fn of_watchdog(request: &watchdog::Request, start: Start<'_>) -> Invocation {
    let begin = |operation, id, wait| start.begin(&WATCHDOG, operation, id, wait);
    match *request {
        watchdog::Request::Wait { id, wait } => begin("wait", id, wait),
        watchdog::Request::Kick { once, expires } => {
            begin("kick", once.attempt, None).argument(milliseconds(expires)).argument(once.retried)
        }
        watchdog::Request::Cancel { id } => begin("cancel", id, None),
    }
}

fn of_barrier(request: &barrier::Request, start: Start<'_>) -> Invocation {
    match *request {
        barrier::Request::Arrive { id, parties, wait } => {
            start.begin(&BARRIER, "arrive", id, wait).argument(parties)
        }
        barrier::Request::Cancel { id, tombstone } => {
            failing(start.begin(&BARRIER, "cancel", id, None), 1, tombstone)
        }
    }
}

fn of_latch(request: &latch::Request, start: Start<'_>) -> Invocation {
    let begin = |operation, id, wait| start.begin(&LATCH, operation, id, wait);
    match *request {
        latch::Request::Wait { id, count, wait } => begin("wait", id, wait).argument(count),
        latch::Request::CountDown { id, count } => begin("count_down", id, None).argument(count),
        latch::Request::Cancel { id } => begin("cancel", id, None),
    }
}

fn of_counter(request: &counter::Request, start: Start<'_>) -> Invocation {
    let begin = |operation, id| start.begin(&COUNTER, operation, id, None);
    match *request {
        counter::Request::Add { id, by } => begin("add", id).argument(by),
        counter::Request::Set { once, value } => {
            begin("set", once.attempt).argument(value).argument(once.retried)
        }
        counter::Request::Get => begin("get", Id::from(0)),
    }
}

/// A lease in milliseconds, or without end.
fn until(lease: Duration) -> Argument {
    if lease == Duration::MAX { "inf".into() } else { milliseconds(lease).into() }
}

/// What the answer to `request` means.
pub(super) fn reply(answer: &Answer, request: &Request) -> Result<Reply> {
    let micros = |index| Duration::from_micros(answer.number(index));
    Ok(match answer.word() {
        "granted" => Reply::Granted { fence: answer.number(0) },
        "queued" => queued(answer, request),
        "busy" => Reply::Busy { retry_after: micros(0) },
        "released" => Reply::Released,
        "not_held" => Reply::NotHeld,
        "renewed" => Reply::Renewed { fence: answer.number(0) },
        "lost" => Reply::Lost,
        "cancelled" => Reply::Cancelled,
        "wrong_kind" => Reply::WrongKind,
        "admitted" => {
            Reply::Admitted { wait: micros(0), remaining: answer.number(1), reset_after: micros(2) }
        }
        "limited" => Reply::Limited {
            retry_after: answer.natural(0).map(Duration::from_micros),
            remaining: answer.number(1),
            reset_after: micros(2),
            waiting: answer.number(3),
        },
        "message" => Reply::Message(answer.text().into()),
        "expired" => Reply::Expired,
        "done" => Reply::Done,
        "conflict" => Reply::Conflict,
        "value" => Reply::Value(answer.integer(0)),
        "inspected" => Reply::Inspected(Box::new(inspection(answer))),
        "unknown" => Reply::Unknown,
        "deleted" => Reply::Deleted,
        _ => return Err(answer.unexpected()),
    })
}

fn queued(answer: &Answer, request: &Request) -> Reply {
    let ahead = answer.number(0);
    let due = answer.natural(1).map(Duration::from_micros);
    let recheck_after = match *request {
        Request::Semaphore(HoldRequest::Acquire { wait: Some(wait), .. }) => {
            primitives::recheck(here(wait), due.unwrap_or(Duration::MAX), ahead)
        }
        Request::RateLimiter(rate_limiter::Request::Take { wait: Some(wait), .. }) => {
            rate_limiter::recheck(here(wait))
        }
        Request::Event(event::Request::Wait { wait: Some(wait), .. })
        | Request::Watchdog(watchdog::Request::Wait { wait: Some(wait), .. })
        | Request::Barrier(barrier::Request::Arrive { wait: Some(wait), .. })
        | Request::Latch(latch::Request::Wait { wait: Some(wait), .. }) => {
            primitives::watchers::recheck(here(wait), due)
        }
        _ => due,
    };
    Reply::Queued { ahead, recheck_after }
}

/// Nobody who waits for a server lives in its process.
fn here(wait: Wait) -> Wait {
    Wait { live: wait.live.or(Some(Redis::WAITER_TTL)), ..wait }
}

fn inspection(answer: &Answer) -> Inspection {
    const HEAD: usize = 7;
    let micros = |index| answer.natural(index).map(Duration::from_micros);
    let held = |index: usize| Held {
        age: micros(index),
        time_left: micros(index + 1),
        fence: answer.number(index + 2),
        permits: answer.number(index + 3),
    };
    let mut holders: Vec<_> = (HEAD..answer.len()).step_by(4).map(held).collect();
    holders.sort_by_key(|held| held.fence);
    Inspection {
        size: answer.natural(0),
        used: answer.natural(1),
        holders,
        waiting: answer.number(2),
        resets_in: micros(3),
        fired: answer.natural(4).map(|fired| fired == 1),
        value: (answer.number(5) == 1).then(|| answer.integer(6)),
    }
}
