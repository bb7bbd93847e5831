//! The exclusive lock: its requests as calls of scripts, and their replies.

use crate::script::{BatchScript, Invocation, LAST_FENCE, Script, ScriptReply, WAITER_TTL, milliseconds};
use locker_core::{
    error::{Error, Result},
    id::Id,
    key::Key,
    primitives::{self, HoldRequest, IdempotencyKey, Reply, Wait, lock::Request},
};
use std::{sync::Arc, time::Duration};

const COMMON: &str = include_str!("../lua/lock.lua");
const ACQUIRE_SLOW: &str = include_str!("../lua/lock_acquire_slow.lua");
const RENEW_FAST: &str = include_str!("../lua/lock_renew_fast.lua");
const STRICT_RENEW: &str = include_str!("../lua/strict_renew.lua");
const HELPERS: &[&str] = &["q", LAST_FENCE, "f", "w", "y", "p"];
static ACQUIRE: Script =
    Script::with_first(HELPERS, include_str!("../lua/lock_acquire_fast.lua"), &[COMMON, ACQUIRE_SLOW])
        .strict("if not closed() then\n", "end\n");
static RENEW_HELD: Script = Script::with_first(&[], RENEW_FAST, &[]).strict(STRICT_RENEW, "");
static RENEW_RUN: Script = Script::with_first(&["f"], RENEW_FAST, &[]).strict(STRICT_RENEW, "");
static RELEASE_ALONE: Script = Script::with_first(&[], include_str!("../lua/lock_release_fast.lua"), &[]);
static ACQUIRE_BATCH: BatchScript =
    BatchScript::new(&[include_str!("../lua/lock_acquire_batch.lua")], &[0, 1], &[0, 1])
        .with_fences()
        .strict(include_str!("../lua/strict_batch.lua"));
static RELEASE_BATCH: BatchScript =
    BatchScript::new(&[include_str!("../lua/lock_release_batch.lua")], &[0], &[0]);

/// Declares the operations of the script for all that is not the common case, each with the parts of its text.
macro_rules! operations {
    ($($name:ident = $word:literal: $($part:expr),+;)+) => {
        static ANY: Script = Script::with_first(
            HELPERS,
            include_str!("../lua/lock_operation.lua"),
            &[COMMON, $("\nif operation == '", $word, "' then\n", $($part),+, "end\n"),+],
        )
        .strict("", "");
        $(static $name: Script = Script::operation(&ANY, HELPERS, $word).strict("", "");)+
    };
}

operations! {
    // Without the part for free locks, which knows no names.
    ACQUIRE_NAMED = "acquire": ACQUIRE_SLOW;
    RENEW = "renew": STRICT_RENEW, RENEW_FAST, include_str!("../lua/lock_renew_slow.lua");
    RELEASE = "release": include_str!("../lua/lock_release_slow.lua");
    EVICT = "evict": include_str!("../lua/lock_evict.lua");
    CANCEL = "cancel": include_str!("../lua/lock_cancel.lua");
    ONCE = "once": include_str!("../lua/lock_once.lua");
    RECHECK = "recheck": include_str!("../lua/lock_recheck.lua");
}

/// Returns all scripts of the lock.
pub(crate) fn scripts() -> impl Iterator<Item = &'static Script> {
    let batches = [ACQUIRE_BATCH.script(), RELEASE_BATCH.script()];
    [&RENEW_HELD, &RENEW_RUN, &RELEASE_ALONE, &ACQUIRE, &ANY].into_iter().chain(batches)
}

/// Returns the call that carries out `request`.
pub(crate) fn invocation(key: &Key, request: &Request, channel: &Arc<str>) -> Invocation {
    match *request {
        HoldRequest::Acquire { id, lease, wait, ask: name } => {
            let mode = match wait {
                None => "no",
                Some(Wait { fair: false, .. }) => "unfair",
                Some(_) if name.is_some() => "named",
                Some(_) => "fair",
            };
            let live = wait.and_then(|wait| wait.live).unwrap_or(WAITER_TTL);
            let acquire = on(if name.is_some() { &ACQUIRE_NAMED } else { &ACQUIRE }, key, id)
                .argument(milliseconds(lease))
                .argument(mode)
                .argument(milliseconds(live))
                .argument(Arc::clone(channel))
                .promise();
            match name {
                Some(name) => acquire.argument(false).argument(name),
                None => acquire.batched(&ACQUIRE_BATCH),
            }
        }
        HoldRequest::Renew { id, lease, once: Some(once) } => {
            change(key, once, id).argument(milliseconds(lease)).promise()
        }
        HoldRequest::Release { id, once: Some(once), .. } => change(key, once, id),
        HoldRequest::Renew { id, lease, .. } => renewal(key, id, lease).after(&RENEW_HELD),
        HoldRequest::Release { id, tombstone, .. } => {
            let release = on(&RELEASE, key, id).argument(tombstone);
            if tombstone { release } else { release.after(&RELEASE_ALONE).batched(&RELEASE_BATCH) }
        }
        HoldRequest::Cancel { id, tombstone } => on(&CANCEL, key, id).argument(tombstone),
        HoldRequest::Evict { of, up_to } => on(&EVICT, key, of.unwrap_or(Id::ZERO)).argument(up_to),
    }
}

/// Returns `acquire` for a waiter that is no longer a member of the run that holds the lock.
pub(crate) fn outside(acquire: Invocation) -> Invocation {
    acquire.argument(true).batched_if(false)
}

/// Returns a call that keeps the places of all waiters of a process, and finds those of `sample` that have none.
pub(crate) fn recheck(key: &Key, channel: &Arc<str>, sample: &[Id]) -> Invocation {
    let sample = sample.iter().map(Id::to_string).collect::<Vec<_>>().join(" ");
    on(&RECHECK, key, Id::ZERO)
        .argument(milliseconds(WAITER_TTL))
        .argument(Arc::clone(channel))
        .argument(Arc::from(sample))
}

/// Returns the call for a change of the hold of `name`, which takes effect once.
fn change(key: &Key, IdempotencyKey { attempt, retried }: IdempotencyKey, name: Id) -> Invocation {
    on(&ONCE, key, attempt).argument(name).argument(retried)
}

fn renewal(key: &Key, id: Id, lease: Duration) -> Invocation {
    on(&RENEW, key, id).argument(milliseconds(lease)).promise()
}

/// Returns the renewal of a run of this process.
pub(crate) fn run_renewal(key: &Key, grant: Grant, lease: Duration) -> Invocation {
    renewal(key, grant.run, lease).after(&RENEW_RUN)
}

/// Returns the renewal that confirms a run of this process, with these very members: a message may be made up.
pub(crate) fn confirmation(key: &Key, run: &Run, lease: Duration, channel: &str) -> Invocation {
    run_renewal(key, run.grant(), lease).argument(Arc::from(run.record(channel)))
}

/// Returns the call that ends a run of this process, if it has these very members and is not confirmed.
pub(crate) fn decline(key: &Key, run: &Run, channel: &str) -> Invocation {
    on(&EVICT, key, run.id()).argument(run.fence).argument(Arc::from(run.record(&format!("?{channel}"))))
}

fn on(script: &'static Script, key: &Key, id: Id) -> Invocation {
    script.on(key).argument(id)
}

/// Reads the reply to `request`.
pub(crate) fn reply(reply: &ScriptReply, request: &Request) -> Result<Reply> {
    Ok(match reply.word() {
        "granted" => Reply::Granted { fence: reply.number(0) },
        "run" => {
            let run = Run::read(reply.text(), reply.number(0)).ok_or_else(|| reply.unexpected())?;
            let HoldRequest::Acquire { id, .. } = *request else { return Err(reply.unexpected()) };
            let fence = run.members().find_map(|member| (member.id == id).then_some(member.fence));
            Reply::Granted { fence: fence.ok_or_else(|| reply.unexpected())? }
        }
        "queued" => queued(reply, request),
        "busy" => Reply::Busy { retry_after: Duration::from_millis(reply.number(0)) },
        "released" => Reply::Released,
        "not_held" => Reply::NotHeld,
        "renewed" => Reply::Renewed { fence: reply.number(0) },
        "lost" => Reply::Lost,
        "cancelled" => Reply::Cancelled,
        "closed" => return Err(quiet(reply)),
        _ => return Err(reply.unexpected()),
    })
}

/// Returns the error for what may be granted after a quiet time, in strict mode.
pub(crate) fn quiet(reply: &ScriptReply) -> Error {
    Error::nothing_is_granted(Duration::from_millis(reply.number(0)))
}

/// Returns whether a script of a lock or semaphore has left dead waiters for another call.
pub(crate) fn has_more(reply: &ScriptReply) -> bool {
    let is_of_lock = matches!(reply.word(), "released" | "cancelled" | "lost") && reply.number(0) == 1;
    is_of_lock || reply.text() == "more"
}

/// Returns a call that only removes dead waiters and serves the next one.
pub(crate) fn removal(key: &Key, _: &Arc<str>) -> Invocation {
    on(&CANCEL, key, Id::ZERO).argument(false)
}

fn queued(reply: &ScriptReply, request: &Request) -> Reply {
    let ahead = reply.number(0);
    let HoldRequest::Acquire { wait: Some(wait), .. } = *request else {
        return Reply::Queued { ahead, recheck_after: None };
    };
    let live = Some(wait.live.unwrap_or(WAITER_TTL));
    Reply::Queued { ahead, recheck_after: primitives::recheck(Wait { live, ..wait }, held_for(reply), ahead) }
}

/// Returns how long the holder keeps the lock without a renewal, from the reply to an acquire or a recheck.
pub(crate) fn held_for(reply: &ScriptReply) -> Duration {
    let index = usize::from(reply.word() == "queued");
    // The lock of another client may have no expiry.
    reply.natural(index).map_or(Duration::MAX, Duration::from_millis)
}

/// Returns whether other clients use the lock. They cannot queue, and send no message when they release.
pub(crate) fn is_shared_with_foreigners(reply: &ScriptReply) -> bool {
    reply.number(if reply.word() == "queued" { 2 } else { 1 }) == 1
}

/// A grant to several waiters of one process, as the scripts write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The fence of the last member. The other members have the fences before it.
    pub(crate) fence: u64,
    /// As the scripts write them.
    text: Arc<str>,
    leases: Vec<(Id, Duration)>,
}

/// A member of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: Id,
    pub(crate) fence: u64,
    pub(crate) lease: Duration,
}

/// One grant to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The id by which the server knows the run.
    pub(crate) run: Id,
    /// The fence of the last member.
    pub(crate) fence: u64,
}

impl Run {
    /// Reads `ID:LEASE,ID:LEASE,..` with at least one member. Of several none has the id of the run, unless the text is
    /// made up.
    pub(crate) fn read(members: &str, fence: u64) -> Option<Self> {
        let member = |text: &str| {
            let (id, lease) = text.split_once(':')?;
            Some((Id::parse(id)?, Duration::from_millis(lease.parse().ok()?)))
        };
        let leases = members.split(',').map(member).collect::<Option<Vec<_>>>()?;
        let run = Self { fence, text: Arc::from(members), leases };
        let is_one = |(id, _): &(Id, Duration)| *id == run.id();
        (run.leases.len() == 1 || !run.leases.iter().any(is_one)).then_some(run)
    }

    pub(crate) fn grant(&self) -> Grant {
        Grant { run: self.id(), fence: self.fence }
    }

    /// Returns what the server has recorded about this run.
    fn record(&self, channel: &str) -> String {
        format!("{} {} {channel} {}", self.fence, self.text, self.id())
    }

    /// Returns the id by which the server knows the run. No member of a run of several has it.
    pub(crate) fn id(&self) -> Id {
        const VERSION: u128 = 0xf << 76;
        match self.leases[..] {
            [(id, _)] => id,
            [(first, _), ..] => Id::from(u128::from(first) & !VERSION | 8 << 76),
            [] => Id::ZERO,
        }
    }

    /// Returns the members in the order of the queue.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        let before = self.fence.saturating_sub(self.leases.len() as u64);
        (1..).zip(&self.leases).map(move |(place, &(id, lease))| Member { id, fence: before + place, lease })
    }
}
