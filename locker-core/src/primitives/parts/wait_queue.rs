//! The waiters and tombstones of everything that has holders.

use super::{ticket_queue::TicketQueue, tombstones::Tombstones};
use crate::{
    clock::Timestamp,
    id::Id,
    primitives::{
        inspection::LISTED,
        protocol::{GRANT_WINDOW, Signal, Wait},
        state::Context,
    },
};
use std::time::Duration;

/// Returns when a waiter of another process asks again: within a third of its lifetime, and soon after the current
/// lease expires. Later waiters ask a little later, so that the first in the queue comes first.
#[must_use]
pub fn recheck(wait: Wait, holder_time_left: Duration, ahead: u64) -> Option<Duration> {
    const STAGGER: Duration = Duration::from_millis(3);
    const STAGGERED: u64 = 100;
    let stagger = STAGGER * u32::try_from(ahead.min(STAGGERED)).unwrap_or(u32::MAX);
    wait.live.map(|live| (live / 3).min(holder_time_left.saturating_add(Duration::from_millis(1) + stagger)))
}

/// How many silent processes are remembered.
const SILENT: usize = 64;

/// The part of a state that exists only under contention.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "_cas",
    derive(serde::Serialize, serde::Deserialize),
    serde(bound(serialize = "A: Clone + serde::Serialize"))
)]
pub(crate) struct WaitQueue<A> {
    pub(crate) queue: TicketQueue<Waiter<A>>,
    pub(crate) tombstones: Tombstones,
    /// The addresses of processes that have let a grant or a wake-up pass. Their waiters are passed over until one of
    /// them asks again, so that a process that has stopped costs the others one grant window, and not one per waiter.
    silent: Vec<u32>,
}

impl<A> Default for WaitQueue<A> {
    fn default() -> Self {
        Self { queue: TicketQueue::default(), tombstones: Tombstones::default(), silent: Vec::new() }
    }
}

impl<A> WaitQueue<A> {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tombstones.is_empty()
    }

    /// Forgets what is over at `now`.
    pub(crate) fn forget_until(&mut self, now: Timestamp) {
        self.tombstones.forget_until(now);
        self.queue.forget_until(now);
        if self.queue.is_empty() {
            self.silent.clear();
        }
    }

    /// Passes over the waiters of a process whose waiter `id` has let a grant or a wake-up pass, until one of them asks
    /// again. A process is not silent in a step that it runs or asks for.
    pub(crate) fn silence(&mut self, id: Id, context: &Context<'_>) {
        let inbox = id.inbox();
        let is_heard = [context.inbox, context.caller].contains(&Some(inbox));
        if !is_heard && !self.queue.is_empty() && !self.silent.contains(&inbox) {
            // Of the ones before, most have ended.
            if self.silent.len() == SILENT {
                self.silent.remove(0);
            }
            self.silent.push(inbox);
        }
    }

    /// Records that the process of the waiter `id` asks.
    pub(crate) fn hear(&mut self, id: Id, context: &mut Context<'_>) {
        context.caller = Some(id.inbox());
        self.silent.retain(|silent| *silent != id.inbox());
    }

    /// Removes the waiters at the head that did not ask in time, or whose process has ended or is silent.
    pub(crate) fn pass_over(&mut self, context: &Context<'_>) {
        while let Some((id, &Waiter { wait, live_until, is_woken, .. })) = self.queue.head() {
            let is_late = live_until <= context.now;
            if is_late && is_woken && wait.live.is_some() {
                self.silence(id, context);
            }
            let inbox = id.inbox();
            if !is_late && !context.gone.contains(&inbox) && !self.silent.contains(&inbox) {
                return;
            }
            self.queue.leave(id);
        }
    }

    /// Returns when all waiters and tombstones are forgotten.
    pub(crate) fn lasts_until(&self) -> Timestamp {
        self.queue.lasts_until().max(self.tombstones.lasts_until())
    }

    /// Returns the first waiters at `now`, and how many there are.
    pub(crate) fn inspect(&self, now: Timestamp) -> (Vec<Id>, u64) {
        if self.queue.lasts_until() <= now {
            return (Vec::new(), 0);
        }
        (self.queue.ids().take(LISTED).collect(), self.queue.len() as u64)
    }

    /// Returns when a waiter is skipped unless it asks again. One of a silent process is skipped any time.
    pub(crate) fn place(&self, id: Id) -> Option<Timestamp> {
        let waiter = self.queue.get(id).filter(|_| !self.silent.contains(&id.inbox()));
        waiter.map(|waiter| waiter.live_until)
    }

    /// Returns when the first waiter is skipped unless it asks again.
    pub(crate) fn head_ends(&self) -> Option<Timestamp> {
        self.queue.head().map(|(_, head)| head.live_until).filter(|end| *end < Timestamp::NEVER)
    }

    /// Returns whether a caller may overtake the queue: only an unfair one may, and never a fair waiter.
    pub(crate) fn may_be_overtaken(&self, wait: Option<Wait>) -> bool {
        wait.is_some_and(|wait| !wait.fair) && self.queue.head().is_none_or(|(_, head)| !head.wait.fair)
    }
}

/// Stores a queue that is empty like none.
#[cfg(feature = "_cas")]
#[expect(clippy::ref_option, reason = "serde passes the field")]
pub(crate) fn store_used<A: Clone + serde::Serialize, S: serde::Serializer>(
    queue: &Option<Box<WaitQueue<A>>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&queue.as_ref().filter(|queue| !queue.is_empty()), serializer)
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    feature = "_cas",
    derive(serde::Serialize, serde::Deserialize),
    serde(
        from = "Stored<A>",
        into = "Stored<A>",
        bound(serialize = "A: Clone + serde::Serialize", deserialize = "A: serde::Deserialize<'de>")
    )
)]
pub(crate) struct Waiter<A> {
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    pub(crate) live_until: Timestamp,
    /// When it will ask again, as last announced to it.
    pub(crate) recheck_at: Timestamp,
    /// Whether it was woken, and has not asked since.
    pub(crate) is_woken: bool,
    pub(crate) ask: A,
}

impl<A> Waiter<A> {
    pub(crate) fn new(lease: Duration, wait: Wait, ask: A, now: Timestamp) -> Self {
        let recheck_at = wait.live.map_or(Timestamp::NEVER, |live| now + live / 3);
        Self { lease, wait, live_until: wait.live_until(now), recheck_at, is_woken: false, ask }
    }

    /// Returns whether the waiter `id` belongs to the process that runs the step, which knows whether it is waiting.
    pub(crate) fn is_here(&self, id: Id, context: &Context<'_>) -> bool {
        self.wait.live.is_none() || context.inbox == Some(id.inbox())
    }

    /// Returns the length of a grant. A waiter of another process may have disappeared, so its grant is short until
    /// it confirms.
    pub(crate) fn grant(&self, id: Id, context: &Context<'_>) -> Duration {
        if self.is_here(id, context) { self.lease } else { self.lease.min(GRANT_WINDOW) }
    }

    /// Returns the waiter with the grant window to ask again, as long as a grant would last. Its process may be paused,
    /// or the task that should poll it may wait for another waiter behind it. Asking again restores its lifetime.
    pub(crate) fn woken(self, context: &Context<'_>) -> Self {
        Self { live_until: self.live_until.min(context.until(GRANT_WINDOW)), is_woken: true, ..self }
    }

    /// Returns the signal for a grant. The process of a waiter that is here counts the lease from the start of the
    /// step.
    pub(crate) fn signal(&self, id: Id, fence: u64, context: &Context<'_>) -> Signal {
        if self.is_here(id, context) {
            Signal::HandedOff { fence, until: context.now + self.lease }
        } else {
            Signal::Granted { fence }
        }
    }
}

/// What is stored of a waiter.
#[cfg(feature = "_cas")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Stored<A> {
    lease: Duration,
    wait: Wait,
    live_until: Timestamp,
    /// The microseconds from `live_until` to `recheck_at`, which are few. The sum wraps around.
    recheck_after: i64,
    is_woken: bool,
    ask: A,
}

#[cfg(feature = "_cas")]
impl<A> From<Waiter<A>> for Stored<A> {
    fn from(Waiter { lease, wait, live_until, recheck_at, is_woken, ask }: Waiter<A>) -> Self {
        let recheck_after = recheck_at.as_micros().wrapping_sub(live_until.as_micros()).cast_signed();
        Self { lease, wait, live_until, recheck_after, is_woken, ask }
    }
}

#[cfg(feature = "_cas")]
impl<A> From<Stored<A>> for Waiter<A> {
    fn from(Stored { lease, wait, live_until, recheck_after, is_woken, ask }: Stored<A>) -> Self {
        let recheck_at = live_until.as_micros().wrapping_add_signed(recheck_after);
        Self { lease, wait, live_until, recheck_at: Timestamp::from_micros(recheck_at), is_woken, ask }
    }
}
