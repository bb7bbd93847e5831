//! The waiters for something that is not held, which are woken to ask again when it happens.

use super::ticket_queue::TicketQueue;
use crate::{
    clock::Timestamp,
    id::Id,
    primitives::{
        protocol::{Reply, Signal, Wait},
        state::Context,
    },
};
use std::time::Duration;

/// How soon a watcher of another process asks again without a signal, since notifications may be lost.
const RECHECK: Duration = Duration::from_secs(5);

/// Returns when a watcher asks again without a signal: at `due` at the latest.
#[must_use]
pub fn recheck(wait: Wait, due: Option<Duration>) -> Option<Duration> {
    let lost = wait.live.map(|live| RECHECK.min(live / 3));
    lost.into_iter().chain(due).min()
}

/// The watchers in the order of their arrival, each with the end of its lifetime.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Watchers(TicketQueue<Timestamp>);

impl Watchers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns when all watchers are forgotten.
    pub(crate) fn lasts_until(&self) -> Timestamp {
        self.0.lasts_until()
    }

    /// Returns when a watcher may be forgotten unless it asks again.
    pub(crate) fn place(&self, id: Id) -> Option<Timestamp> {
        self.0.get(id).copied()
    }

    pub(crate) fn has(&self, id: Id) -> bool {
        self.0.get(id).is_some()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.0.ids()
    }

    /// Adds or keeps a watcher, or removes it if there is no `wait`. It need not ask again before `due` if nothing can
    /// happen earlier.
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

    /// Forgets each watcher that did not ask in time.
    pub(crate) fn forget_dead(&mut self, now: Timestamp) {
        if self.0.has_expiring() {
            self.0.retain(|_, live_until| *live_until > now);
        }
    }

    /// Sends `signal` to all watchers and forgets them.
    pub(crate) fn dismiss(&mut self, signal: Signal, context: &mut Context<'_>) {
        for id in std::mem::take(self).0.ids() {
            context.notify(id, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watcher_asks_again_within_its_lifetime() {
        let seconds = Duration::from_secs;
        let wait = |live: Option<u64>| Wait { live: live.map(seconds), fair: true };
        assert_eq!(recheck(wait(Some(9)), None), Some(seconds(3)));
        assert_eq!(recheck(wait(Some(60)), None), Some(RECHECK));
        assert_eq!(recheck(wait(Some(60)), Some(seconds(2))), Some(seconds(2)));
        assert_eq!(recheck(wait(None), Some(seconds(20))), Some(seconds(20)));
        assert_eq!(recheck(wait(None), None), None);
    }
}
