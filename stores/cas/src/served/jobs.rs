//! What a connection is to do.

use super::Fault;
use crate::{
    backend::{Holder, Inbox, Message, Outcome, Values, Write},
    queue::Call,
};
use locker_core::error::{Error, Result};
use std::fmt;
use tokio::sync::oneshot;

/// What a connection is to do.
pub enum Job {
    /// One write or comparison.
    Exchange(Exchange),
    /// Sends messages, and returns the inboxes that nobody listens to.
    Send(Vec<Message>, oneshot::Sender<Result<Vec<Inbox>>>),
    /// Reads a page of values.
    List(List, oneshot::Sender<Result<Values>>),
    /// Raises the longest hold, in the epoch with an id.
    Raise(i64, i64, oneshot::Sender<Result<()>>),
}

/// A write or comparison, and where its answer goes.
pub struct Exchange {
    /// What is to be done.
    pub write: Write,
    /// The count of removals that the process knew.
    pub removals: i64,
    /// The id in `locker_boot` without which nothing is written.
    pub epoch: i64,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<Outcome>>,
}

/// A page of values: those from `from` and after `after`, below `below`, at most `limit`.
#[derive(Debug)]
pub struct List {
    /// The first possible key.
    pub from: String,
    /// A text before all keys of the page.
    pub after: String,
    /// A text after all keys of the list.
    pub below: String,
    /// The maximum of keys.
    pub limit: i64,
}

/// The numbers of a row.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// How long the row matters, in microseconds.
    pub lasts: i64,
    /// The fence of the holder of an exclusive lock, 0 without one.
    pub fence: i64,
    /// When its hold ends, on the clock of the server.
    pub held_until: i64,
}

impl Exchange {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.write.key.as_str()
    }

    /// Returns the numbers of its row.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        // The sum with the present time must not overflow: this is a hundred thousand years.
        let lasts = i64::try_from(self.write.lasts.as_micros()).unwrap_or(i64::MAX).min(i64::MAX / 2);
        let (fence, held_until) = match self.write.holder {
            Some(Holder { fence, until }) => (number(fence), number(until.as_micros())),
            None => (0, 0),
        };
        Numbers { lasts, fence, held_until }
    }
}

/// Answers exchanges with an error. Returns whether the connection is still good.
pub fn fail(exchanges: impl IntoIterator<Item = Exchange>, fault: &Fault) -> bool {
    for exchange in exchanges {
        drop(exchange.answer.send(Err(fault.error.clone())));
    }
    !fault.is_broken
}

impl Call for Job {
    fn is_given_up(&self) -> bool {
        match self {
            Self::Exchange(exchange) => exchange.answer.is_closed(),
            Self::Send(_, answer) => answer.is_closed(),
            Self::List(_, answer) => answer.is_closed(),
            Self::Raise(_, _, answer) => answer.is_closed(),
        }
    }
}

impl Job {
    pub(super) fn fail(self, error: &Error) {
        match self {
            Self::Exchange(exchange) => drop(exchange.answer.send(Err(error.clone()))),
            Self::Send(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::List(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::Raise(_, _, answer) => drop(answer.send(Err(error.clone()))),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("write", &self.write).finish_non_exhaustive()
    }
}
