//! Those who wait for something that is not held: told to ask again when it comes.

use super::{Context, Reply, Signal, Wait, queue::Queue};
use crate::{clock::Timestamp, id::Id};
use std::time::Duration;

/// How soon a watcher of another process asks again without being told to: a message may get lost.
const RECHECK: Duration = Duration::from_secs(5);

/// When a watcher asks again without being told to: at the latest when it comes by itself.
pub(crate) fn recheck(wait: Wait, due: Option<Duration>) -> Option<Duration> {
    let lost = wait.live.map(|live| RECHECK.min(live / 3));
    lost.into_iter().chain(due).min()
}

/// Watchers in the order they came, with the time up to which they are taken to be alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchers(Queue<Timestamp>);

impl Watchers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn has(&self, id: Id) -> bool {
        self.0.get(id).is_some()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.0.ids()
    }

    /// Joins or stays, or leaves when there is no `wait`; what comes surely not before `due` need not be asked for
    /// earlier.
    pub(crate) fn watch(
        &mut self,
        id: Id,
        wait: Option<Wait>,
        due: Option<Duration>,
        now: Timestamp,
    ) -> Reply {
        let Some(wait) = wait else {
            self.leave(id);
            return Reply::Busy { retry_after: due.unwrap_or_default() };
        };
        self.0.join(id, wait.live_until(now));
        self.0.keep(wait.live_until(now));
        Reply::Queued { ahead: self.0.ahead(id), recheck_after: recheck(wait, due) }
    }

    pub(crate) fn leave(&mut self, id: Id) {
        self.0.leave(id);
    }

    /// Forgets them all when of none was heard in time.
    pub(crate) fn forget_until(&mut self, now: Timestamp) {
        self.0.forget_until(now);
    }

    /// Forgets everybody who was not heard of in time.
    pub(crate) fn forget_dead(&mut self, now: Timestamp) {
        if self.0.has_mortals() {
            self.0.retain(|_, live_until| *live_until > now);
        }
    }

    /// Tells everybody and forgets them.
    pub(crate) fn dismiss(&mut self, signal: Signal, context: &mut Context<'_>) {
        for id in std::mem::take(self).0.ids() {
            context.notify(id, signal);
        }
    }
}
