//! What goes out on a connection.
//!
//! A call that is alone goes out at once. Others gather until the background thread comes round to them. Then all
//! that are there are written at once, and those that one script can make together become one call of it: what a call
//! costs the server is mostly what comes before and after its work. What such a script leaves undone is called by
//! itself, before any later write about the same key: calls about one key keep their order, but for those of one write.
//! A write that follows others waits for their answers until it is worth it; nobody wakes the writer before.

mod writer;

pub(super) use writer::UNANSWERED;

use super::script::{Batch, Invocation};
use crate::{
    clock::Timestamp,
    key::Key,
    panics,
    sync::{Mutex, lock},
};
use redis::{Cmd, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use std::{
    collections::VecDeque,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::{Notify, Semaphore, oneshot};
use writer::Writer;

/// How many calls may be unanswered before others wait with theirs.
const ROOM: usize = 8192;

type Answer = oneshot::Sender<RedisResult<Value>>;

/// What a call is made of.
#[derive(Debug)]
pub(super) enum Content {
    Command(Cmd),
    /// A script by its digest, and by what it may be called together with others.
    Script(Arc<Invocation>, Option<&'static Batch>),
    /// A script with its whole text.
    InFull(Arc<Invocation>),
}

impl Content {
    fn invocation(&self) -> Option<&Invocation> {
        match self {
            Self::Command(_) => None,
            Self::Script(invocation, _) | Self::InFull(invocation) => Some(invocation),
        }
    }

    fn key(&self) -> Option<&Key> {
        self.invocation().map(Invocation::key)
    }

    /// The command that makes this call alone.
    fn command(&self) -> Cmd {
        match self {
            Self::Command(command) => command.clone(),
            Self::Script(invocation, _) => invocation.by_digest(),
            Self::InFull(invocation) => invocation.in_full(),
        }
    }
}

/// When an answer last came over this connection, in microseconds.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<AtomicU64>);

impl Heard {
    fn something(&self) {
        self.0.store(Timestamp::now().as_micros(), Ordering::Relaxed);
    }
}

/// A call on its way out.
#[derive(Debug)]
struct Call {
    content: Content,
    answer: Answer,
}

impl Call {
    fn answer(self, answer: RedisResult<Value>) {
        panics::contain(|| drop(self.answer.send(answer)));
    }

    /// The same, to be made by itself.
    fn apart(self) -> Self {
        let content = match self.content {
            Content::Script(invocation, _) => Content::Script(invocation, None),
            content => content,
        };
        Self { content, ..self }
    }
}

/// Calls that the writer has not taken yet.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    enough: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    calls: VecDeque<Call>,
    /// How many there have to be for the writer to be woken: for fewer it would not do anything.
    wanted: usize,
}

impl Queue {
    fn join(&self, call: Call) {
        let mut waiting = lock(&self.waiting);
        waiting.calls.push_back(call);
        let is_enough = waiting.calls.len() == waiting.wanted;
        drop(waiting);
        if is_enough {
            self.enough.notify_one();
        }
    }

    /// Moves those who wait to the end of `line`, at most so many. Nobody is woken until it is known again how many
    /// are enough.
    fn take(&self, most: usize, line: &mut VecDeque<Call>) {
        let mut waiting = lock(&self.waiting);
        waiting.wanted = usize::MAX;
        let count = most.min(waiting.calls.len());
        line.extend(waiting.calls.drain(..count));
    }

    /// Comes back when so many wait.
    async fn until(&self, wanted: usize) {
        let is_enough = {
            let mut waiting = lock(&self.waiting);
            waiting.wanted = wanted;
            waiting.calls.len() >= wanted
        };
        if !is_enough {
            self.enough.notified().await;
        }
    }
}

/// Where calls are left.
#[derive(Debug)]
pub(super) struct Outbox {
    connection: MultiplexedConnection,
    queue: Arc<Queue>,
    /// A permit for each call that may be unanswered.
    room: Semaphore,
    heard: Heard,
    /// Gone with the outbox: nobody waits for answers any more.
    _open: oneshot::Sender<()>,
}

impl Outbox {
    /// An outbox, and what empties it over `connection` for as long as there is the outbox.
    pub(super) fn new(connection: MultiplexedConnection) -> (Self, impl Future<Output = ()> + Send) {
        let ((open, closed), queue, heard) = (oneshot::channel(), Arc::<Queue>::default(), Heard::default());
        let writer = Writer::new(Arc::clone(&queue), heard.clone());
        let writes_to = connection.clone();
        let writing = async move {
            tokio::select! {
                () = writer.write(writes_to) => {}
                _ = closed => {}
            }
        };
        (Self { connection, queue, room: Semaphore::new(ROOM), heard, _open: open }, writing)
    }

    /// Whether anything has come since `time`.
    pub(super) fn has_heard_since(&self, time: Timestamp) -> bool {
        self.heard.0.load(Ordering::Relaxed) >= time.as_micros()
    }

    /// What the server answers.
    pub(super) async fn send(&self, content: Content) -> RedisResult<Value> {
        let is_alone = self.room.available_permits() == ROOM;
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let _room = match self.room.try_acquire() {
            Ok(permit) => permit,
            Err(_) => Box::pin(self.room.acquire()).await.map_err(|_| closed())?,
        };
        if is_alone {
            return Box::pin(self.send_at_once(content)).await;
        }
        let (answer, answered) = oneshot::channel();
        self.queue.join(Call { content, answer });
        answered.await.map_err(|_| closed())?
    }

    async fn send_at_once(&self, content: Content) -> RedisResult<Value> {
        let answer = self.connection.clone().send_packed_command(&content.command()).await;
        let answer = answer.and_then(Value::extract_error);
        if !answer.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
            self.heard.something();
        }
        answer
    }
}

#[cfg(test)]
mod tests;
