//! Calls on their way to the writer of a connection.

use crate::{
    script::{BatchScript, Invocation},
    url::Replicas,
};
use locker_core::{
    clock::Timestamp,
    key::Key,
    panics,
    sync::{Mutex, lock},
};
use redis::{Cmd, RedisResult, Value};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::{Notify, oneshot};

/// How calls are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means {
    /// Whether the server is a node of a cluster, which refuses calls with keys of several slots.
    pub(crate) by_slot: bool,
    /// The replicas that must have a grant.
    pub(crate) replicas: Option<Replicas>,
}

/// The content of a call.
#[derive(Debug)]
pub(crate) enum Payload {
    Command(Cmd),
    /// A script by its digest, and the script that may make the call together with others.
    Script(Arc<Invocation>, Option<&'static BatchScript>),
    /// A script with its whole text.
    InFull(Arc<Invocation>),
    /// A call right behind `ASKING`.
    Asking(Box<Payload>),
}

impl Payload {
    pub(super) fn invocation(&self) -> Option<&Invocation> {
        match self {
            Self::Command(_) => None,
            Self::Asking(call) => call.invocation(),
            Self::Script(invocation, _) | Self::InFull(invocation) => Some(invocation),
        }
    }

    /// Whether the reply may be that the caller holds something.
    pub(super) fn is_promise(&self) -> bool {
        self.invocation().is_some_and(Invocation::is_promise)
    }

    pub(super) fn key(&self) -> Option<&Key> {
        self.invocation().map(Invocation::key)
    }

    /// Returns the command that makes only this call.
    pub(super) fn command(&self) -> Cmd {
        match self {
            Self::Command(command) => command.clone(),
            Self::Asking(call) => call.command(),
            Self::Script(invocation, _) => invocation.by_digest(),
            Self::InFull(invocation) => invocation.in_full(),
        }
    }
}

/// The time of the latest reply over this connection, in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct LastReply(Arc<AtomicU64>);

impl LastReply {
    pub(super) fn record(&self) {
        self.0.store(Timestamp::now().as_micros(), Ordering::Relaxed);
    }

    pub(super) fn is_since(&self, time: Timestamp) -> bool {
        self.0.load(Ordering::Relaxed) >= time.as_micros()
    }
}

/// A call, and the sender for its reply.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) payload: Payload,
    pub(super) reply: oneshot::Sender<RedisResult<Value>>,
}

impl Call {
    pub(super) fn finish(self, result: RedisResult<Value>) {
        panics::contain(|| drop(self.reply.send(result)));
    }

    /// Returns the call that follows after a batch which has not made it.
    pub(super) fn after_batch(self) -> Self {
        let payload = match self.payload {
            Payload::Script(invocation, _) => {
                Payload::Script(invocation.rest().map_or(invocation, Arc::new), None)
            }
            payload => payload,
        };
        Self { payload, ..self }
    }
}

/// The calls that the writer has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    enough: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    calls: VecDeque<Call>,
    /// The number of calls that wakes the writer: fewer would not make it write.
    wanted: usize,
}

impl Queue {
    pub(super) fn push(&self, call: Call) {
        let mut waiting = lock(&self.waiting);
        waiting.calls.push_back(call);
        let is_enough = waiting.calls.len() == waiting.wanted;
        drop(waiting);
        if is_enough {
            self.enough.notify_one();
        }
    }

    /// Moves at most `max` calls to the end of `pending`. No call wakes the writer until it has set the wanted number
    /// again.
    pub(super) fn take(&self, max: usize, pending: &mut VecDeque<Call>) {
        let mut waiting = lock(&self.waiting);
        waiting.wanted = usize::MAX;
        let count = max.min(waiting.calls.len());
        pending.extend(waiting.calls.drain(..count));
    }

    /// Waits until `wanted` calls are in the queue.
    pub(super) async fn until(&self, wanted: usize) {
        let is_enough = {
            let mut waiting = lock(&self.waiting);
            waiting.wanted = wanted;
            waiting.calls.len() >= wanted
        };
        if !is_enough {
            self.enough.notified().await;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.waiting).calls.len()
    }
}
