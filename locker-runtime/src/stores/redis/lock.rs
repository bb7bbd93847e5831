//! The exclusive lock: its requests as scripts, and their answers.

use super::{
    Redis,
    line::Bequest,
    script::{Answer, Batch, Invocation, Script},
};
use crate::{
    Result,
    id::Id,
    key::Key,
    primitives::{self, Holding, Reply, Wait, lock::Request},
};
use std::{sync::Arc, time::Duration};

const COMMON: &str = include_str!("lock.lua");
const HELPERS: &[&str] = &["f", "q", "w", "y", "x:"];
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

/// The call that carries `request` out.
pub(super) fn invocation(key: &Key, request: &Request, channel: &Arc<str>) -> Invocation {
    match *request {
        Holding::Acquire { id, lease, wait, ask: () } => {
            let mode = wait.map_or("no", |wait| if wait.fair { "fair" } else { "unfair" });
            let live = wait.and_then(|wait| wait.live).unwrap_or(Redis::LIVENESS);
            on(&ACQUIRE, key, id)
                .argument(milliseconds(lease))
                .argument(mode)
                .argument(milliseconds(live))
                .argument(Arc::clone(channel))
                .together(&ACQUIRE_MANY)
        }
        Holding::Renew { id, lease, .. } => on(&RENEW, key, id).argument(milliseconds(lease)),
        Holding::Release { id, tombstone, .. } => on(&RELEASE, key, id).argument(tombstone),
        Holding::Cancel { id, tombstone } => on(&CANCEL, key, id).argument(tombstone),
        Holding::Evict { of, up_to } => on(&EVICT, key, of.unwrap_or(Id::ZERO)).argument(up_to),
    }
}

/// The release of `id`, asking who of at most `tell` waiters comes after the next holder.
pub(super) fn release(key: &Key, id: Id, tell: usize) -> Invocation {
    end(key, id, tell).together(&RELEASE_MANY)
}

/// A release that names the next holder.
pub(super) fn bequeath(key: &Key, bequest: &Bequest) -> Invocation {
    let Bequest { from, heir, lease, fence, tell, .. } = *bequest;
    end(key, from, tell).argument(heir).argument(milliseconds(lease)).argument(fence)
}

fn end(key: &Key, id: Id, tell: usize) -> Invocation {
    on(&RELEASE, key, id).argument(false).argument(tell as u64)
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
        "queued" => queued(answer, request),
        "busy" => Reply::Busy { retry_after: Duration::from_millis(answer.number(0)) },
        "released" | "not_held" => return released(answer),
        "renewed" => Reply::Renewed { fence: answer.number(0) },
        "lost" => Reply::Lost,
        "cancelled" => Reply::Cancelled,
        _ => return Err(answer.unexpected()),
    })
}

/// What the answer to a release means.
pub(super) fn released(answer: &Answer) -> Result<Reply> {
    match answer.word() {
        "released" => Ok(Reply::Released),
        "not_held" => Ok(Reply::NotHeld),
        _ => Err(answer.unexpected()),
    }
}

/// Whether an answer says that there was no hold, or may mean that.
pub(super) fn is_refusal(answer: &Answer) -> bool {
    matches!(answer.word(), "not_held" | "lost" | "cancelled")
}

fn queued(answer: &Answer, request: &Request) -> Reply {
    // A holder that is none of ours may have no end.
    let (ahead, left) = (answer.number(0), answer.natural(1).map_or(Duration::MAX, Duration::from_millis));
    let Holding::Acquire { id, wait: Some(wait), .. } = *request else {
        return Reply::Queued { ahead, recheck_in: Some(left) };
    };
    let live = Some(wait.live.unwrap_or(Redis::LIVENESS));
    let is_foreign = answer.number(2) == 1;
    let left = if is_foreign { left.min(poll(id)) } else { left };
    Reply::Queued { ahead, recheck_in: primitives::recheck(Wait { live, ..wait }, left, ahead) }
}

/// A holder that is none of ours tells nobody of its release: 50 to 100 ms.
fn poll(id: Id) -> Duration {
    Duration::from_millis(50 + u64::from(id.jitter(51)))
}
