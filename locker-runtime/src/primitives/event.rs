//! The event: sent once, seen by everybody who waits then or later, until it is reset.

use super::{
    Context, IdempotencyKey, Reply, Signal, Wait, inspection::Inspection, remembered::ReplyCache,
    watchers::Watchers,
};
use crate::{clock::Timestamp, id::Id};
use std::{sync::Arc, time::Duration};

/// What can be asked of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Has it been sent? `wait`: tell me when it is.
    Wait {
        /// The waiter.
        id: Id,
        /// How to wait; `None` answers at once.
        wait: Option<Wait>,
    },
    /// Send it; sending twice is a conflict.
    Send {
        /// The attempt: repeating it is no conflict.
        once: IdempotencyKey,
        /// What every waiter is given.
        message: Arc<str>,
        /// How long it stays sent.
        keep: Duration,
    },
    /// Make it unsent.
    Reset {
        /// The attempt.
        once: IdempotencyKey,
    },
    /// Wait no longer.
    Cancel {
        /// The waiter.
        id: Id,
    },
}

/// The state of one event.
#[derive(Clone, Debug, Default)]
pub struct State {
    sent: Option<Sent>,
    watchers: Watchers,
    /// What those will be answered who waited at a send: it may be over when they ask again.
    told: ReplyCache<Arc<str>>,
    /// What was answered to repeated sends and resets: others may have reset and sent it when another copy comes.
    answered: ReplyCache<Reply>,
}

#[derive(Clone, Debug)]
struct Sent {
    by: Id,
    message: Arc<str>,
    until: Timestamp,
}

/// Carries out one request on one event.
///
/// Laws: of many sends one succeeds until the reset; after it every wait is answered with its message, and so is,
/// whatever comes after, every wait that it found in line; no copy of a send or a reset counts after one that said
/// that it was repeated.
pub fn step(state: &mut State, request: &Request, context: &mut Context<'_>) -> Reply {
    state.forget(context.now);
    match request {
        Request::Wait { id, wait } => state.wait(*id, *wait, context.now),
        Request::Send { once, .. } | Request::Reset { once } => state.change(*once, request, context),
        Request::Cancel { id } => {
            state.watchers.leave(*id);
            state.told.forget(*id);
            Reply::Cancelled
        }
    }
}

impl State {
    fn forget(&mut self, now: Timestamp) {
        self.watchers.forget_until(now);
        self.told.forget_until(now);
        self.answered.forget_until(now);
        if self.sent.as_ref().is_some_and(|sent| sent.until <= now) {
            self.sent = None;
        }
    }

    fn wait(&mut self, id: Id, wait: Option<Wait>, now: Timestamp) -> Reply {
        if let Some(message) = self.told.get(id).cloned() {
            if Wait::is_answered_once(wait) {
                self.told.forget(id);
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
        IdempotencyKey { attempt, repeated }: IdempotencyKey,
        request: &Request,
        context: &mut Context<'_>,
    ) -> Reply {
        if let Some(reply) = self.answered.get(attempt) {
            return reply.clone();
        }
        let reply = if let Request::Send { message, keep, .. } = request {
            self.send(attempt, message, *keep, context)
        } else {
            self.sent = None;
            Reply::Done
        };
        if repeated {
            self.answered.keep(attempt, reply.clone(), context.now);
        }
        reply
    }

    fn send(&mut self, id: Id, message: &Arc<str>, keep: Duration, context: &mut Context<'_>) -> Reply {
        if let Some(sent) = &self.sent {
            return if sent.by == id { Reply::Done } else { Reply::Conflict };
        }
        self.sent = Some(Sent { by: id, message: message.clone(), until: context.now + keep });
        self.watchers.ids().for_each(|id| self.told.keep(id, message.clone(), context.now));
        self.watchers.dismiss(Signal::Wake, context);
        Reply::Done
    }
}

impl super::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        step(self, request, context)
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.forget(context.now);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let sent = self.sent.as_ref().map(|sent| sent.until);
        sent.into_iter().chain(self.told.next_end()).chain(self.answered.next_end()).min()
    }

    fn users(&self) -> usize {
        self.watchers.len()
    }

    fn is_idle(&self) -> bool {
        self.sent.is_none() && self.watchers.is_empty() && self.told.is_empty() && self.answered.is_empty()
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
