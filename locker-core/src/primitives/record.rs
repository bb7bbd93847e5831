//! The record: of several callers one runs, and its success and its result count for the others, either for a slot of
//! time or as long as the result is kept.

mod request;
mod results;

use super::{
    inspection::{Held, Inspection},
    parts::{
        hold_request::HoldRequest, idempotency::IdempotencyKey, tombstones::Tombstones, watchers::Watchers,
    },
    protocol::{Reply, Signal, TOMBSTONE, Wait},
    state::{self, Context},
    value::Value,
};
use crate::{clock::Timestamp, id::Id};
pub use request::{AfterCrash, Ask, Request, Slots};
use results::{Results, Success};
use std::time::Duration;

/// The state of one record.
///
/// | state | `Acquire` | `Finish` | `Release`, `Cancel`, the lease is over |
/// | --- | --- | --- | --- |
/// | idle | `Begun`: a run | `Lost`; kept, if its lease has ended in the last minute and nothing has begun since | |
/// | a run | its id: `Begun`; another digest: `Mismatch`; else `Queued`, `Busy` | its id: kept | idle, or unknown (*) |
/// | kept | another digest: `Mismatch`; its slot or an earlier one: `Finished`; else as idle | its id: `Recorded` | |
/// | unknown | its slot or an earlier one: `Lost`, or `Mismatch`; else as idle | its id: kept | |
///
/// A success or an unknown outcome of a run without slots counts for all slots.
///
/// (*) Unknown if the lease is over and `AfterCrash::Refuse` was asked for. Waiters are woken.
///
/// A success is kept, and an unknown outcome is known, while a later slot runs. A call belongs to the slot in which it
/// asks last, a run to the slot in which it began.
///
/// Laws:
/// - at most one unexpired run, and fences rise;
/// - a slot, or the time for which a result is kept, sees one success, whatever the clock does and however late a
///   request arrives;
/// - every caller that is queued when a run succeeds gets its result, if that is of its slot: for a minute, whatever
///   happens until it asks again, within the room for [`MAX_VALUE`](super::MAX_VALUE) bytes of such results;
/// - a success is recorded once: no later copy of its `Finish` has an effect;
/// - callers with another digest get `Mismatch`, whether the run is over or not;
/// - with [`AfterCrash::Refuse`] nothing begins after a run that ended without a report;
/// - a run that fails, or is cancelled or given up, leaves nothing: the next caller runs.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    run: Option<Run>,
    unknown: Option<Unknown>,
    /// A run that lost its lease, while nothing has begun since. Its success still counts.
    lapsed: Option<Unknown>,
    results: Results,
    last_fence: u64,
    watchers: Watchers,
    tombstones: Tombstones,
}

/// A run that goes on.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
struct Run {
    what: Begun,
    until: Timestamp,
    missed: u64,
    /// How long its outcome stays unknown if its lease ends, if nothing may begin then.
    refuse: Option<Duration>,
}

/// A run without a lease. Its success may be on its way, or its process has died: the store does not know.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
struct Unknown {
    what: Begun,
    until: Timestamp,
}

/// What stays the same of a run, whatever follows.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
struct Begun {
    id: Id,
    fence: u64,
    /// The beginning of its slot. `None` without slots: it counts for all.
    slot: Option<Timestamp>,
    digest: Option<Id>,
}

impl Begun {
    /// Returns whether it counts for calls of this slot.
    fn covers(&self, slot: Option<Timestamp>) -> bool {
        self.slot.is_none() || slot <= self.slot
    }

    fn agrees_with(&self, digest: Option<Id>) -> bool {
        self.digest.zip(digest).is_none_or(|(one, other)| one == other)
    }
}

impl Run {
    fn reply(&self) -> Reply {
        Reply::Begun { fence: self.what.fence, slot: self.what.slot, missed: self.missed }
    }

    /// Returns when nothing of it matters any more, if it ends with its lease.
    fn lasts_until(&self) -> Timestamp {
        self.until + self.refuse.unwrap_or(TOMBSTONE)
    }
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.forget(context);
        match *request {
            Request::Hold(HoldRequest::Acquire { id, lease, wait, ask }) => {
                self.begin(id, lease, wait, &ask, context)
            }
            Request::Hold(HoldRequest::Renew { id, lease, once }) => self.renew(id, lease, once, context),
            Request::Hold(HoldRequest::Release { id, tombstone, once }) => {
                self.release(id, tombstone, once, context)
            }
            Request::Hold(HoldRequest::Cancel { id, tombstone }) => self.cancel(id, tombstone, context),
            Request::Hold(HoldRequest::Evict { of, up_to }) => self.evict(of, up_to, context),
            Request::Finish { id, ref value, keep } => self.finish(id, value, keep, context),
        }
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let ends = [
            self.run.map(|run| run.until),
            self.unknown.map(|unknown| unknown.until),
            self.lapsed.map(|lapsed| lapsed.until),
            self.results.next_end(),
            self.tombstones.next_end(),
        ];
        ends.into_iter().flatten().min()
    }

    fn has_waiters(&self) -> bool {
        !self.watchers.is_empty()
    }

    fn users(&self) -> usize {
        usize::from(self.run.is_some()) + self.watchers.len()
    }

    fn is_idle(&self) -> bool {
        self.run.is_none()
            && self.unknown.is_none()
            && self.lapsed.is_none()
            && self.results.is_empty()
            && self.watchers.is_empty()
            && self.tombstones.is_empty()
    }

    fn is_in_use(&self) -> bool {
        self.users() > 0 || self.unknown.is_some() || self.results.kept().is_some()
    }

    fn lasts_until(&self) -> Timestamp {
        let run = self.run.map_or(Timestamp::default(), |run| run.lasts_until());
        let ended = [self.unknown, self.lapsed].into_iter().flatten().map(|ended| ended.until).max();
        let kept = self.results.lasts_until().max(self.tombstones.lasts_until());
        run.max(ended.unwrap_or_default()).max(kept).max(self.watchers.lasts_until())
    }

    fn is_held(&self, name: Id, now: Timestamp) -> bool {
        self.run.is_some_and(|run| run.what.id == name && run.until > now)
    }

    fn is_free_for(&self, _request: &Request) -> bool {
        self.run.is_none()
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        self.watchers.place(id)
    }

    fn exclusive_holder(&self) -> Option<(u64, Timestamp)> {
        self.run.map(|run| (run.what.fence, run.until))
    }

    fn held_until(&self) -> Timestamp {
        self.run.map_or(Timestamp::default(), |run| run.until)
    }

    fn last_fence(&self) -> u64 {
        self.last_fence
    }

    fn raise_fence(&mut self, fence: u64) {
        self.last_fence = self.last_fence.max(fence);
    }

    /// A run is a holder, and `fired` says whether a success is kept. `resets_in` is how long it is kept, or an outcome
    /// unknown.
    fn inspect(&self, now: Timestamp) -> Inspection {
        let held = |run: Run| Held {
            time_left: (run.until < Timestamp::NEVER).then(|| run.until.since(now)),
            tag: Some(run.what.id.tag()),
            ..Held::new(run.what.fence, 1)
        };
        let kept = self.results.kept().map(|kept| kept.until).filter(|until| *until > now);
        let unknown = self.unknown.map(|unknown| unknown.until).filter(|until| *until > now);
        Inspection {
            holders: self.run.filter(|run| run.until > now).map(held).into_iter().collect(),
            waiting: self.watchers.len() as u64,
            resets_in: kept.max(unknown).map(|until| until.since(now)),
            fired: Some(kept.is_some()),
            ..Inspection::default()
        }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        (self.run, self.unknown, self.lapsed) = (None, None, None);
        self.results.keep_for_waiters_alone();
        self.watchers.dismiss(Signal::Deleted, context);
    }
}

impl State {
    /// Returns the attempt that runs.
    #[must_use]
    pub fn run(&self) -> Option<Id> {
        self.run.map(|run| run.what.id)
    }

    fn begin(
        &mut self,
        id: Id,
        lease: Duration,
        wait: Option<Wait>,
        ask: &Ask,
        context: &mut Context<'_>,
    ) -> Reply {
        let slot = ask.slots.map(|slots| slots.at(context.wall));
        if let Some(reply) = self.settled(id, wait, slot, ask, context) {
            self.watchers.leave(id);
            return reply;
        }
        if let Some(run) = &mut self.run {
            if run.what.id == id {
                run.until = run.until.max(context.until(lease));
                return run.reply();
            }
            let left = (run.until < Timestamp::NEVER).then(|| run.until.since(context.now));
            return self.watchers.watch(id, wait, left, context.now);
        }
        if let Some(left) = context.quiet {
            return self.watchers.watch(id, wait, Some(left), context.now);
        }
        self.watchers.leave(id);
        // Queued in a quiet time, so nothing is known of their digests.
        self.watchers.dismiss(Signal::Wake, context);
        let missed = ask.slots.zip(slot).map_or(0, |(slots, slot)| self.missed(slots, slot));
        let fence = context.fence(self.last_fence);
        self.last_fence = fence;
        let refuse = match ask.after_crash {
            AfterCrash::RunAgain => None,
            AfterCrash::Refuse { keep } => Some(keep),
        };
        let what = Begun { id, fence, slot, digest: ask.digest };
        self.lapsed = None;
        self.run.insert(Run { what, until: context.until(lease), missed, refuse }).reply()
    }

    /// Returns the reply to a call that neither runs nor waits.
    fn settled(
        &mut self,
        id: Id,
        wait: Option<Wait>,
        slot: Option<Timestamp>,
        ask: &Ask,
        context: &Context<'_>,
    ) -> Option<Reply> {
        if self.tombstones.has(id) {
            return Some(Reply::Cancelled);
        }
        if let Some(value) = self.results.answer(id, slot, Wait::is_answered_once(wait)) {
            return Some(Reply::Finished { value });
        }
        let judged = |what: &Begun, reply| {
            if what.agrees_with(ask.digest) { reply } else { Reply::Mismatch }
        };
        if let Some(kept) = self.results.kept().filter(|kept| kept.what.covers(slot)) {
            return Some(judged(&kept.what, Reply::Finished { value: kept.value.clone() }));
        }
        if let Some(unknown) = self.unknown.filter(|unknown| unknown.what.covers(slot)) {
            return Some(judged(&unknown.what, Reply::Lost));
        }
        let run = self.run.filter(|run| run.until > context.now && !run.what.agrees_with(ask.digest));
        run.map(|_| Reply::Mismatch)
    }

    /// Returns the number of slots without a success since the last one, or from an outcome that is unknown.
    fn missed(&self, slots: Slots, slot: Timestamp) -> u64 {
        let done = self.results.kept().and_then(|kept| kept.what.slot);
        let after_done = done.map(|done| slots.count(done, slot).saturating_sub(1));
        let unknown = self.unknown.and_then(|unknown| unknown.what.slot);
        after_done.or(unknown.map(|unknown| slots.count(unknown, slot))).unwrap_or(0)
    }

    fn finish(&mut self, id: Id, value: &Value, keep: Duration, context: &mut Context<'_>) -> Reply {
        if self.results.has(id) {
            return Reply::Recorded;
        }
        let run = self.run.take_if(|run| run.what.id == id).map(|run| run.what);
        // In a quiet time another one may have begun that is not seen.
        let lapsed = self.lapsed.filter(|_| context.quiet.is_none());
        let known = || {
            [self.unknown, lapsed].into_iter().flatten().map(|known| known.what).find(|what| what.id == id)
        };
        let Some(what) = run.or_else(known) else { return Reply::Lost };
        self.unknown.take_if(|unknown| what.covers(unknown.what.slot));
        self.lapsed.take_if(|lapsed| lapsed.what.id == id);
        // The end of a promise has a spread on some stores.
        let until = if keep.is_zero() { context.now } else { context.until(keep) };
        let success = Success::new(what, value, until, context.now);
        if self.run.is_some() {
            // Of an earlier slot. The waiters wait for the run.
            self.results.add(success, std::iter::empty(), context.now);
        } else {
            self.results.add(success, self.watchers.ids(), context.now);
            self.watchers.dismiss(Signal::Wake, context);
        }
        Reply::Recorded
    }

    fn renew(
        &mut self,
        id: Id,
        lease: Duration,
        once: Option<IdempotencyKey>,
        context: &mut Context<'_>,
    ) -> Reply {
        let is_late = self.tombstones.is_late(once, context.now);
        let Some(run) = self.run.as_mut().filter(|run| run.what.id == id) else { return Reply::Lost };
        if !is_late {
            run.until = run.until.max(context.until(lease));
        }
        Reply::Renewed { fence: run.what.fence }
    }

    fn release(
        &mut self,
        id: Id,
        tombstone: bool,
        once: Option<IdempotencyKey>,
        context: &mut Context<'_>,
    ) -> Reply {
        if tombstone {
            self.tombstones.add(id, context.now);
        }
        if self.tombstones.is_late(once, context.now) || !self.give_up(id, context) {
            return Reply::NotHeld;
        }
        Reply::Released
    }

    fn cancel(&mut self, id: Id, tombstone: bool, context: &mut Context<'_>) -> Reply {
        if tombstone {
            self.tombstones.add(id, context.now);
        }
        self.watchers.leave(id);
        self.results.forget_waiter(id);
        self.give_up(id, context);
        // An outcome that is unknown stays so: it stands for earlier slots, too.
        self.lapsed.take_if(|lapsed| lapsed.what.id == id);
        Reply::Cancelled
    }

    /// Ends the run `id` without success, if it goes on.
    fn give_up(&mut self, id: Id, context: &mut Context<'_>) -> bool {
        let is_over = self.run.take_if(|run| run.what.id == id).is_some();
        if is_over {
            self.watchers.dismiss(Signal::Wake, context);
        }
        is_over
    }

    /// Ends the run of another caller, which may go on without its lease.
    fn evict(&mut self, of: Option<Id>, up_to: u64, context: &mut Context<'_>) -> Reply {
        let is_meant = |run: &mut Run| run.what.fence <= up_to && of.is_none_or(|id| id == run.what.id);
        let Some(run) = self.run.take_if(is_meant) else { return Reply::NotHeld };
        self.end(Run { until: context.now, ..run }, context);
        Reply::Released
    }

    /// Ends a run at the end of its lease.
    fn end(&mut self, run: Run, context: &mut Context<'_>) {
        let (what, until) = (run.what, run.lasts_until());
        if run.refuse.is_some() {
            // It stands for earlier slots, too.
            let until = self.unknown.map_or(until, |unknown| unknown.until.max(until));
            self.unknown = Some(Unknown { what, until });
        } else {
            self.lapsed = Some(Unknown { what, until });
        }
        self.watchers.dismiss(Signal::Wake, context);
    }

    fn forget(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        self.watchers.forget_dead(now);
        self.tombstones.forget_until(now);
        self.results.forget_until(now);
        if let Some(run) = self.run.take_if(|run| run.until <= now) {
            self.end(run, context);
        }
        for ended in [&mut self.unknown, &mut self.lapsed] {
            ended.take_if(|ended| ended.until <= now);
        }
    }
}

#[cfg(test)]
mod tests;
