//! The exclusive lock: its requests as scripts, and their answers.

use super::{
    Redis,
    script::{Answer, Batch, Invocation, Script},
};
use crate::{
    error::Result,
    id::Id,
    key::Key,
    primitives::{self, HoldRequest, Reply, Wait, lock::Request},
};
use std::{sync::Arc, time::Duration};

const COMMON: &str = include_str!("lock.lua");
const HELPERS: &[&str] = &["f", "q", "w", "y", "x:", "p"];
static ACQUIRE: Script = Script::with_first(
    HELPERS,
    include_str!("lock_acquire_free.lua"),
    &[COMMON, include_str!("lock_acquire.lua")],
);
static RENEW: Script = Script::with_first(
    HELPERS,
    include_str!("lock_renew.lua"),
    &[COMMON, include_str!("lock_renew_lost.lua")],
);
static RELEASE: Script = Script::with_first(
    HELPERS,
    include_str!("lock_release.lua"),
    &[COMMON, include_str!("lock_release_rest.lua")],
);
static ACQUIRE_MANY: Batch = Batch::new(&[include_str!("lock_acquire_many.lua")], &[0, 1, 2, 5], &[0, 1]);
static RELEASE_MANY: Batch = Batch::new(&[include_str!("lock_release_many.lua")], &[0, 2], &[0]);
static EVICT: Script = Script::new(HELPERS, &[COMMON, include_str!("lock_evict.lua")]);
static CANCEL: Script = Script::new(HELPERS, &[COMMON, include_str!("lock_cancel.lua")]);
static LOOK: Script = Script::new(HELPERS, &[COMMON, include_str!("lock_look.lua")]);

/// All scripts of the lock.
pub(super) fn scripts() -> impl Iterator<Item = &'static Script> {
    let batches = [ACQUIRE_MANY.script(), RELEASE_MANY.script()];
    [&ACQUIRE, &RENEW, &RELEASE, &EVICT, &CANCEL, &LOOK].into_iter().chain(batches)
}

/// The call that carries `request` out.
pub(super) fn invocation(key: &Key, request: &Request, channel: &Arc<str>) -> Invocation {
    match *request {
        HoldRequest::Acquire { id, lease, wait, ask: () } => {
            let mode = wait.map_or("no", |wait| if wait.fair { "fair" } else { "unfair" });
            let live = wait.and_then(|wait| wait.live).unwrap_or(Redis::WAITER_TTL);
            on(&ACQUIRE, key, id)
                .argument(milliseconds(lease))
                .argument(mode)
                .argument(milliseconds(live))
                .argument(Arc::clone(channel))
                .together(&ACQUIRE_MANY)
        }
        HoldRequest::Renew { id, lease, .. } => on(&RENEW, key, id).argument(milliseconds(lease)),
        HoldRequest::Release { id, tombstone, .. } => {
            let release = on(&RELEASE, key, id).argument(tombstone);
            if tombstone { release } else { release.together(&RELEASE_MANY) }
        }
        HoldRequest::Cancel { id, tombstone } => on(&CANCEL, key, id).argument(tombstone),
        HoldRequest::Evict { of, up_to } => on(&EVICT, key, of.unwrap_or(Id::ZERO)).argument(up_to),
    }
}

/// The same acquire for a waiter that is no member any more of the run that holds the lock.
pub(super) fn outside(acquire: Invocation) -> Invocation {
    acquire.argument(true).together_if(false)
}

/// A call that asks for all waiters of a process, and which of `sample` have no place in the queue.
pub(super) fn look(key: &Key, channel: &Arc<str>, sample: &[Id]) -> Invocation {
    let sample = sample.iter().map(Id::to_string).collect::<Vec<_>>().join(" ");
    on(&LOOK, key, Id::ZERO)
        .argument(milliseconds(Redis::WAITER_TTL))
        .argument(Arc::clone(channel))
        .argument(Arc::from(sample))
}

fn on(script: &'static Script, key: &Key, id: Id) -> Invocation {
    script.on(key).argument(id)
}

/// Rounded up: a lease may last longer, never shorter.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// What the answer to `request` means.
pub(super) fn reply(answer: &Answer, request: &Request) -> Result<Reply> {
    Ok(match answer.word() {
        "granted" => Reply::Granted { fence: answer.number(0) },
        "run" => {
            let run = Run::read(answer.text(), answer.number(0)).ok_or_else(|| answer.unexpected())?;
            let HoldRequest::Acquire { id, .. } = *request else { return Err(answer.unexpected()) };
            let fence = run.members().find_map(|member| (member.id == id).then_some(member.fence));
            Reply::Granted { fence: fence.ok_or_else(|| answer.unexpected())? }
        }
        "queued" => queued(answer, request),
        "busy" => Reply::Busy { retry_after: Duration::from_millis(answer.number(0)) },
        "released" => Reply::Released,
        "not_held" => Reply::NotHeld,
        "renewed" => Reply::Renewed { fence: answer.number(0) },
        "lost" => Reply::Lost,
        "cancelled" => Reply::Cancelled,
        _ => return Err(answer.unexpected()),
    })
}

/// Whether a script that ended a hold has left dead waiters for another call.
pub(super) fn has_more(answer: &Answer) -> bool {
    matches!(answer.word(), "released" | "cancelled" | "lost") && answer.number(0) == 1
}

fn queued(answer: &Answer, request: &Request) -> Reply {
    let ahead = answer.number(0);
    let HoldRequest::Acquire { wait: Some(wait), .. } = *request else {
        return Reply::Queued { ahead, recheck_after: None };
    };
    let live = Some(wait.live.unwrap_or(Redis::WAITER_TTL));
    Reply::Queued {
        ahead,
        recheck_after: primitives::recheck(Wait { live, ..wait }, held_for(answer), ahead),
    }
}

/// How long the holder may keep the lock without being heard of, as the answer to an acquire or a look says.
pub(super) fn held_for(answer: &Answer) -> Duration {
    let index = usize::from(answer.word() == "queued");
    // A holder that is none of ours may have no end.
    answer.natural(index).map_or(Duration::MAX, Duration::from_millis)
}

/// Whether clients take part that cannot queue: they send no message when they release.
pub(super) fn is_shared_with_foreigners(answer: &Answer) -> bool {
    answer.number(if answer.word() == "queued" { 2 } else { 1 }) == 1
}

/// Waiters of one process that were granted the lock together, as the scripts write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The fence of the last member; the others have those before it.
    pub(super) fence: u64,
    leases: Vec<(Id, Duration)>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: Id,
    pub(super) fence: u64,
    pub(super) lease: Duration,
}

impl Run {
    /// Reads `ID:LEASE,ID:LEASE,..`, of which there is at least one.
    pub(super) fn read(members: &str, fence: u64) -> Option<Self> {
        let member = |text: &str| {
            let (id, lease) = text.split_once(':')?;
            Some((Id::parse(id)?, Duration::from_millis(lease.parse().ok()?)))
        };
        Some(Self { fence, leases: members.split(',').map(member).collect::<Option<_>>()? })
    }

    /// The id by which the server knows it: of several, one that no member has.
    pub(super) fn id(&self) -> Id {
        const VERSION: u128 = 0xf << 76;
        match self.leases[..] {
            [(id, _)] => id,
            [(first, _), ..] => Id::from(u128::from(first) & !VERSION | 8 << 76),
            [] => Id::ZERO,
        }
    }

    /// Its members, in the order of the queue.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> {
        let first = self.fence.saturating_sub(self.leases.len() as u64);
        (first + 1..).zip(&self.leases).map(|(fence, &(id, lease))| Member { id, fence, lease })
    }
}
