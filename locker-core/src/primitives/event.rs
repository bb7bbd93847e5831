//! The event: sent once, received by all current and later waiters, until it is reset.

use super::{
    inspection::Inspection,
    parts::{idempotency::IdempotencyKey, reply_cache::ReplyCache, watchers::Watchers},
    protocol::{Reply, Signal, Wait},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id};
use std::{sync::Arc, time::Duration};

/// A request to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Returns the message, or waits for it if `wait` is given.
    Wait {
        /// The waiter.
        id: Id,
        /// How to wait. With `None` the reply is immediate.
        wait: Option<Wait>,
    },
    /// Sends the event. Sending it twice is a conflict.
    Send {
        /// The attempt. Repeating it is no conflict.
        once: IdempotencyKey,
        /// The message for every waiter.
        message: Arc<str>,
        /// How long it stays sent.
        keep: Duration,
    },
    /// Resets the event to unsent.
    Reset {
        /// The attempt.
        once: IdempotencyKey,
    },
    /// Stops waiting.
    Cancel {
        /// The waiter.
        id: Id,
    },
}

/// The state of one event.
///
/// Laws:
/// - of several sends one succeeds until the reset;
/// - every wait after a send gets its message;
/// - every wait that is queued at a send gets its message, whatever happens until it asks again;
/// - no copy of a send or reset has an effect after a retry.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    sent: Option<Sent>,
    watchers: Watchers,
    /// The messages for the waiters that were queued at a send, which may have ended when they ask again.
    notified: ReplyCache<Arc<str>>,
    /// Whether retried sends and resets were carried out. Further copies may arrive after later sends and resets.
    answered: ReplyCache<bool>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
struct Sent {
    by: Id,
    message: Arc<str>,
    until: Timestamp,
}

impl State {
    fn forget(&mut self, now: Timestamp) {
        self.watchers.forget_dead(now);
        self.notified.forget_until(now);
        self.answered.forget_until(now);
        if self.sent.as_ref().is_some_and(|sent| sent.until <= now) {
            self.sent = None;
        }
    }

    fn wait(&mut self, id: Id, wait: Option<Wait>, now: Timestamp) -> Reply {
        if let Some(message) = self.notified.get(id).cloned() {
            if Wait::is_answered_once(wait) {
                self.notified.forget(id);
            }
            return Reply::Message(message);
        }
        if let Some(sent) = &self.sent {
            self.watchers.leave(id);
            return Reply::Message(sent.message.clone());
        }
        self.watchers.watch(id, wait, None, now)
    }

    fn change(
        &mut self,
        IdempotencyKey { attempt, retried }: IdempotencyKey,
        request: &Request,
        context: &mut Context<'_>,
    ) -> Reply {
        let answered = self.answered.get(attempt).copied();
        let is_done = answered.unwrap_or_else(|| {
            if let Request::Send { message, keep, .. } = request {
                self.send(attempt, message, *keep, context)
            } else {
                self.sent = None;
                true
            }
        });
        if retried {
            self.answered.keep(attempt, is_done, context.now);
        }
        if is_done { Reply::Done } else { Reply::Conflict }
    }

    fn send(&mut self, id: Id, message: &Arc<str>, keep: Duration, context: &mut Context<'_>) -> bool {
        if let Some(sent) = &self.sent {
            return sent.by == id;
        }
        self.sent = Some(Sent { by: id, message: message.clone(), until: context.until(keep) });
        self.watchers.ids().for_each(|id| self.notified.keep(id, message.clone(), context.now));
        self.watchers.dismiss(Signal::Wake, context);
        true
    }
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.forget(context.now);
        match request {
            Request::Wait { id, wait } => self.wait(*id, *wait, context.now),
            Request::Send { once, .. } | Request::Reset { once } => self.change(*once, request, context),
            Request::Cancel { id } => {
                self.watchers.leave(*id);
                self.notified.forget(*id);
                Reply::Cancelled
            }
        }
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context.now);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let sent = self.sent.as_ref().map(|sent| sent.until);
        sent.into_iter().chain(self.notified.next_end()).chain(self.answered.next_end()).min()
    }

    fn users(&self) -> usize {
        self.watchers.len()
    }

    fn is_idle(&self) -> bool {
        self.sent.is_none()
            && self.watchers.is_empty()
            && self.notified.is_empty()
            && self.answered.is_empty()
    }

    fn is_in_use(&self) -> bool {
        self.sent.is_some() || !self.watchers.is_empty()
    }

    fn lasts_until(&self) -> Timestamp {
        let sent = self.sent.as_ref().map_or(Timestamp::default(), |sent| sent.until);
        let kept = self.notified.lasts_until().max(self.answered.lasts_until());
        sent.max(kept).max(self.watchers.lasts_until())
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        self.watchers.place(id)
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let sent = self.sent.as_ref().filter(|sent| sent.until > now);
        Inspection {
            fired: Some(sent.is_some()),
            waiting: self.watchers.len() as u64,
            resets_in: sent.map(|sent| sent.until.since(now)),
            ..Inspection::default()
        }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        self.watchers.dismiss(Signal::Deleted, context);
        self.sent = None;
    }
}
