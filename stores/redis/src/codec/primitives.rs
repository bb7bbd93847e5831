//! Every primitive except the lock: its requests as calls of scripts, and their replies.

use crate::{
    codec::lock::quiet,
    script::{Argument, BatchScript, Invocation, LAST_FENCE, Script, ScriptReply, WAITER_TTL, milliseconds},
};
use locker_core::{
    clock::Timestamp,
    error::Result,
    id::Id,
    key::Key,
    primitives::{
        self, HoldRequest, IdempotencyKey, Reply, Request, Value, Wait, barrier, counter, event,
        inspection::{Held, Inspection},
        latch,
        rate_limiter::{self, NO_BURST, Quota},
        record::{self, AfterCrash, Ask, Slots},
        semaphore, watchdog,
    },
};
use std::{sync::Arc, time::Duration};

const HELPERS: &[&str] = &["q", "w", "a", "b", "z"];
const HELD: &[&str] = &["q", "w", "a", "b", "z", LAST_FENCE];
const WATCHED: &[&str] = &["q", "w", "a", "b", "z", "e"];
const RUN: &[&str] = &["q", "w", "a", "b", "z", "e", LAST_FENCE];

macro_rules! scripts {
    ($($name:ident($helpers:ident) = $kind:literal: $(strict $before:literal,)? $(first $($first:literal)+,)? $($file:literal),+;)+) => {
        $(static $name: Script = Script::with_first(
            $helpers,
            concat!($($(include_str!(concat!("../lua/", $first))),+)?),
            &[
                concat!("local KIND = '", $kind, "'\n"),
                include_str!("../lua/prelude.lua"),
                $(include_str!(concat!("../lua/", $file))),+
            ],
        )$(.strict($before, ""))?;)+

        /// Returns all scripts of these primitives, and the script for all kinds.
        pub(crate) fn scripts() -> impl Iterator<Item = &'static Script> {
            [$(&$name,)+ &RENEW_HELD, &INSPECT_DELETE, RATE_BATCH.script(), IN_USE.script()].into_iter()
        }

        /// Returns the script of the primitive with this `kind` in its key.
        fn of_kind(kind: &str) -> Option<&'static Script> {
            match kind {
                $($kind => Some(&$name),)+
                _ => None,
            }
        }
    };
}

scripts! {
    SEMAPHORE(HELD) = "semaphore": strict "", "semaphore.lua";
    RATE(HELPERS) = "rate": first "rate_limiter_take.lua" "rate_limiter_fast.lua", "rate_limiter_slow.lua";
    EVENT(WATCHED) = "event": "watchers.lua", "reply_cache.lua", "event.lua";
    WATCHDOG(WATCHED) = "watchdog": "watchers.lua", "watchdog.lua";
    BARRIER(WATCHED) = "barrier": "watchers.lua", "barrier.lua";
    LATCH(WATCHED) = "latch": "watchers.lua", "latch.lua";
    COUNTER(HELPERS) = "counter": "reply_cache.lua", "counter.lua";
    RECORD(RUN) = "record": strict "", "watchers.lua", "record.lua";
}

static RENEW_HELD: Script = Script::new(&["a"], &[include_str!("../lua/semaphore_renew.lua")]).strict("", "");
static RATE_BATCH: BatchScript = BatchScript::new(
    &[include_str!("../lua/rate_limiter_take.lua"), include_str!("../lua/rate_limiter_batch.lua")],
    &[0],
    &[4, 5, 6],
);
static IN_USE: BatchScript = BatchScript::new(&[include_str!("../lua/in_use.lua")], &[0, 1, 2, 3], &[]);
static INSPECT_DELETE: Script = Script::new(
    &["q", "w", "a", "b", "y", "f", "x:", "p", "z", "e"],
    &[include_str!("../lua/inspect_delete.lua")],
);

/// Returns the call that carries out `request`, or `None` for the lock and requests for all kinds.
pub(crate) fn invocation(key: &Key, request: &Request, channel: &Arc<str>) -> Option<Invocation> {
    let start = Start { key, channel };
    Some(match request {
        Request::Semaphore(request) => of_semaphore(request, start),
        Request::RateLimiter(request) => of_rate_limiter(request, start),
        Request::Event(request) => of_event(request, start),
        Request::Watchdog(request) => of_watchdog(request, start),
        Request::Barrier(request) => of_barrier(request, start),
        Request::Latch(request) => of_latch(request, start),
        Request::Counter(request) => of_counter(request, start),
        Request::Record(request) => of_record(request, start),
        Request::Lock(_) | Request::Inspect | Request::Delete(_) => return None,
    })
}

/// Returns a call that reads the kind of a key, and the state if it is a lock.
pub(crate) fn kind_of(key: &Key) -> Invocation {
    INSPECT_DELETE.on(key).argument(Id::ZERO).argument("kind")
}

/// Returns the command that tells which of `keys` are in use.
pub(crate) fn in_use(keys: &[Key], in_full: bool) -> redis::Cmd {
    let calls: Vec<_> = keys.iter().map(|key| INSPECT_DELETE.on(key)).collect();
    IN_USE.command(&calls.iter().collect::<Vec<_>>(), in_full)
}

/// Returns a call that deletes a key of any kind.
pub(crate) fn delete(key: &Key, once: IdempotencyKey) -> Invocation {
    INSPECT_DELETE.on(key).argument(once.attempt).argument("delete").argument(once.retried)
}

/// Returns a call that reads the state of a key, or `None` if `kind` is unknown.
pub(crate) fn inspect(key: &Key, kind: &str) -> Option<Invocation> {
    of_kind(kind)
        .map(|script| Start { key, channel: &Arc::from("-") }.begin(script, "inspect", Id::from(0), None))
}

/// The arguments that all calls for one key share.
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
            Some(wait) => call.argument(milliseconds(wait.live.unwrap_or(WAITER_TTL))),
            None => call.argument("no"),
        }
    }
}

fn of_semaphore(request: &semaphore::Request, start: Start<'_>) -> Invocation {
    let begin = |operation, id, wait| start.begin(&SEMAPHORE, operation, id, wait);
    match *request {
        HoldRequest::Acquire { id, lease, wait, ask } => begin("acquire", id, wait)
            .argument(lease_argument(lease))
            .argument(if wait.is_none_or(|wait| wait.fair) { "fair" } else { "unfair" })
            .argument(ask.size.min(semaphore::MAX_SIZE))
            .argument(ask.permits.min(semaphore::MAX_SIZE))
            .argument(ask.key)
            .promise(),
        HoldRequest::Renew { id, lease, once: None } => {
            begin("renew", id, None).argument(lease_argument(lease)).promise().after(&RENEW_HELD)
        }
        HoldRequest::Renew { id, lease, once: Some(once) } => {
            by_name(begin("renew", id, None).argument(lease_argument(lease)), 3, false, once).promise()
        }
        HoldRequest::Release { id, tombstone, once: None } => {
            with_tombstone(begin("release", id, None), 5, tombstone)
        }
        HoldRequest::Release { id, tombstone, once: Some(once) } => {
            by_name(begin("release", id, None), 4, tombstone, once)
        }
        HoldRequest::Cancel { id, tombstone } => with_tombstone(begin("cancel", id, None), 5, tombstone),
        HoldRequest::Evict { of, up_to } => begin("evict", of.unwrap_or(Id::ZERO), None).argument(up_to),
    }
}

/// Returns a call that only removes dead waiters of a semaphore and serves the next ones.
pub(crate) fn removal(key: &Key, channel: &Arc<str>) -> Invocation {
    of_semaphore(&HoldRequest::Cancel { id: Id::ZERO, tombstone: false }, Start { key, channel })
}

/// Adds `missing` placeholders, then whether the server refuses the id from now on.
fn with_tombstone(call: Invocation, missing: usize, tombstone: bool) -> Invocation {
    without(call, missing).argument(tombstone)
}

/// Does what [`with_tombstone`] does, with the attempt before the last argument. A retry also makes the server refuse
/// the attempt.
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
            call.argument(patience).batched(&RATE_BATCH)
        }
        rate_limiter::Request::Cancel { id, tombstone } => {
            with_tombstone(start.begin(&RATE, "cancel", id, None), 3, tombstone)
        }
    }
}

/// Returns the settings of a limiter as the script reads them.
fn words(Quota { algorithm, count, interval, burst }: Quota) -> Arc<str> {
    let letter = algorithm.letter();
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
        event::Request::Reset { once } => with_tombstone(begin("reset", once.attempt, None), 2, once.retried),
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
        barrier::Request::Arrive { id, parties, wait, once } => {
            start.begin(&BARRIER, "arrive", id, wait).argument(parties).argument(once)
        }
        barrier::Request::Cancel { id, tombstone } => {
            with_tombstone(start.begin(&BARRIER, "cancel", id, None), 1, tombstone)
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

fn of_record(request: &record::Request, start: Start<'_>) -> Invocation {
    let begin = |operation, id, wait| start.begin(&RECORD, operation, id, wait);
    match request {
        record::Request::Hold(request) => match *request {
            HoldRequest::Acquire { id, lease, wait, ask } => {
                of_ask(begin("acquire", id, wait).argument(lease_argument(lease)), ask).promise()
            }
            HoldRequest::Renew { id, lease, once } => {
                let call = begin("renew", id, None).argument(lease_argument(lease));
                match once {
                    None => call,
                    Some(once) => by_name(call, 4, false, once),
                }
                .promise()
            }
            HoldRequest::Release { id, tombstone, once: None } => {
                with_tombstone(begin("release", id, None), 6, tombstone)
            }
            HoldRequest::Release { id, tombstone, once: Some(once) } => {
                by_name(begin("release", id, None), 5, tombstone, once)
            }
            HoldRequest::Cancel { id, tombstone } => with_tombstone(begin("cancel", id, None), 6, tombstone),
            HoldRequest::Evict { of, up_to } => begin("evict", of.unwrap_or(Id::ZERO), None).argument(up_to),
        },
        record::Request::Finish { id, value, keep } => {
            begin("finish", *id, None).argument(lease_argument(*keep)).argument(value.clone()).promise()
        }
    }
}

/// Adds what a call asks of a record.
fn of_ask(call: Invocation, Ask { slots, digest, after_crash }: Ask) -> Invocation {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let call = match slots {
        None => without(call, 3),
        Some(Slots { every, from, early }) => {
            call.argument(micros(every).max(1)).argument(micros(from)).argument(micros(early))
        }
    };
    let call = match digest {
        None => call.argument("-"),
        Some(digest) => call.argument(digest),
    };
    match after_crash {
        AfterCrash::RunAgain => call.argument("-"),
        AfterCrash::Refuse { keep } => call.argument(lease_argument(keep)),
    }
}

/// Returns a lease in milliseconds, or `inf` for one without end.
fn lease_argument(lease: Duration) -> Argument {
    if lease == Duration::MAX { "inf".into() } else { milliseconds(lease).into() }
}

/// Reads the reply to `request`.
pub(crate) fn reply(reply: &ScriptReply, request: &Request) -> Result<Reply> {
    let micros = |index| Duration::from_micros(reply.number(index));
    Ok(match reply.word() {
        "granted" => Reply::Granted { fence: reply.number(0) },
        "queued" => queued(reply, request),
        "busy" => Reply::Busy { retry_after: micros(0) },
        "released" => Reply::Released,
        "not_held" => Reply::NotHeld,
        "renewed" => Reply::Renewed { fence: reply.number(0) },
        "lost" => Reply::Lost,
        "cancelled" => Reply::Cancelled,
        "wrong_kind" => Reply::WrongKind,
        "closed" => return Err(quiet(reply)),
        "admitted" => Reply::Admitted { wait: micros(0), remaining: reply.number(1), reset_after: micros(2) },
        "limited" => Reply::Limited {
            retry_after: reply.natural(0).map(Duration::from_micros),
            remaining: reply.number(1),
            reset_after: micros(2),
            waiting: reply.number(3),
        },
        "message" => Reply::Message(reply.text().into()),
        "expired" => Reply::Expired,
        "done" => Reply::Done,
        "conflict" => Reply::Conflict,
        "value" => Reply::Value(reply.integer(0)),
        "inspected" => Reply::Inspected(Box::new(inspection(reply))),
        "unknown" => Reply::Unknown,
        "deleted" => Reply::Deleted,
        "begun" => Reply::Begun {
            fence: reply.number(0),
            slot: reply.natural(1).map(Timestamp::from_micros),
            missed: reply.number(2),
        },
        "finished" => Reply::Finished { value: Value::new(reply.bytes()).ok_or_else(|| reply.unexpected())? },
        "recorded" => Reply::Recorded,
        "mismatch" => Reply::Mismatch,
        _ => return Err(reply.unexpected()),
    })
}

fn queued(reply: &ScriptReply, request: &Request) -> Reply {
    let ahead = reply.number(0);
    let due = reply.natural(1).map(Duration::from_micros);
    let recheck_after = match *request {
        Request::Semaphore(HoldRequest::Acquire { wait: Some(wait), .. }) => {
            primitives::recheck(with_ttl(wait), due.unwrap_or(Duration::MAX), ahead)
        }
        Request::RateLimiter(rate_limiter::Request::Take { wait: Some(wait), .. }) => {
            rate_limiter::recheck(with_ttl(wait))
        }
        Request::Event(event::Request::Wait { wait: Some(wait), .. })
        | Request::Watchdog(watchdog::Request::Wait { wait: Some(wait), .. })
        | Request::Barrier(barrier::Request::Arrive { wait: Some(wait), .. })
        | Request::Latch(latch::Request::Wait { wait: Some(wait), .. })
        | Request::Record(record::Request::Hold(HoldRequest::Acquire { wait: Some(wait), .. })) => {
            primitives::watchers::recheck(with_ttl(wait), due)
        }
        _ => due,
    };
    Reply::Queued { ahead, recheck_after }
}

/// Sets the default time that a place is kept: no waiter lives in the server's process.
fn with_ttl(wait: Wait) -> Wait {
    Wait { live: wait.live.or(Some(WAITER_TTL)), ..wait }
}

/// Returns what precedes the waiters in the text of a reply: the kind of a key, or the holder of a lock.
pub(crate) fn before_waiters(text: &str) -> &str {
    text.split_once(';').map_or(text, |(before, _)| before)
}

/// Returns the first waiters in the text of a reply.
pub(crate) fn waiters(text: &str) -> Vec<Id> {
    let waiters = text.split_once(';').map_or("", |(_, waiters)| waiters);
    waiters.split(' ').filter_map(Id::parse).collect()
}

fn inspection(reply: &ScriptReply) -> Inspection {
    const HEAD: usize = 7;
    let micros = |index| reply.natural(index).map(Duration::from_micros);
    let held = |(index, id): (usize, &str)| {
        let mut held = Held::new(reply.number(index + 2), reply.number(index + 3));
        (held.age, held.time_left) = (micros(index), micros(index + 1));
        held.tag = Id::parse(id).map(Id::tag);
        held
    };
    // The text has the id of each holder.
    let ids = before_waiters(reply.text()).split(' ').chain(std::iter::repeat(""));
    let mut holders: Vec<_> = (HEAD..reply.len()).step_by(4).zip(ids).map(held).collect();
    holders.sort_by_key(|held| held.fence);
    let mut seen = Inspection::default();
    (seen.size, seen.used) = (reply.natural(0), reply.natural(1));
    (seen.holders, seen.waiting) = (holders, reply.number(2));
    seen.waiters = waiters(reply.text());
    seen.resets_in = micros(3);
    seen.fired = reply.natural(4).map(|fired| fired == 1);
    seen.value = (reply.number(5) == 1).then(|| reply.integer(6));
    seen
}
