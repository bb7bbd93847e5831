//! What goes out on a connection.
//!
//! A call that is alone goes out at once. Others gather until the background thread comes round to them. Then all
//! that are there are written at once, and those that one script can make together become one call of it: what a call
//! costs the server is mostly what comes before and after its work. What such a script leaves undone is called by
//! itself, before anything later about the same key: calls about one key keep their order. A write that follows others
//! waits for their answers until it is worth it.
//!
//! A script goes out with its text until the server has run it over this connection, then by its digest.

mod writer;

pub(super) use writer::UNANSWERED;

use super::script::{Batch, Invocation, Script};
use crate::{
    key::Key,
    sync::{Mutex, lock},
};
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};
use std::{
    future::Future,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};
use writer::Writer;

/// How many calls may wait to be written before their senders do.
const WAITING: usize = 4096;

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

    fn script(&self) -> Option<&'static Script> {
        self.invocation().map(Invocation::script)
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

/// The scripts that the server has run over this connection: it knows them.
#[derive(Clone, Debug, Default)]
struct Run(Arc<Mutex<Vec<&'static Script>>>);

impl Run {
    fn has(&self, script: &'static Script) -> bool {
        lock(&self.0).iter().any(|known| ptr::eq(*known, script))
    }

    fn note(&self, script: Option<&'static Script>, answer: &RedisResult<Value>) {
        if let (Some(script), Ok(_)) = (script, answer)
            && !self.has(script)
        {
            lock(&self.0).push(script);
        }
    }
}

/// A call on its way out.
#[derive(Debug)]
struct Call {
    content: Content,
    answer: Answer,
}

impl Call {
    /// The same, to be made by itself.
    fn apart(self) -> Self {
        let content = match self.content {
            Content::Script(invocation, _) => Content::Script(invocation, None),
            content => content,
        };
        Self { content, ..self }
    }
}

/// Where calls are left.
#[derive(Debug)]
pub(super) struct Outbox {
    connection: MultiplexedConnection,
    calls: mpsc::Sender<Call>,
    /// How many have not been answered yet.
    unanswered: AtomicUsize,
    run: Run,
    /// Gone with the outbox: nobody waits for answers any more.
    _open: oneshot::Sender<()>,
}

impl Outbox {
    /// An outbox, and what empties it over `connection` for as long as there is the outbox.
    pub(super) fn new(connection: MultiplexedConnection) -> (Self, impl Future<Output = ()> + Send) {
        let ((sender, calls), (open, closed)) = (mpsc::channel(WAITING), oneshot::channel());
        let run = Run::default();
        let (writer, writes_to) = (Writer::new(run.clone()), connection.clone());
        let writing = async move {
            tokio::select! {
                () = writer.write(writes_to, calls) => {}
                _ = closed => {}
            }
        };
        (Self { connection, calls: sender, unanswered: AtomicUsize::new(0), run, _open: open }, writing)
    }

    /// What the server answers.
    ///
    /// Polled once, the call is in line: what is sent later comes after it.
    pub(super) async fn send(&self, content: Content) -> RedisResult<Value> {
        let content = match content {
            // Refused as unknown and sent again, it would be overtaken by what is sent meanwhile.
            Content::Script(invocation, _) if !self.run.has(invocation.script()) => {
                Content::InFull(invocation)
            }
            content => content,
        };
        let is_alone = self.unanswered.fetch_add(1, Ordering::Relaxed) == 0;
        let _answered = Unanswered(&self.unanswered);
        if is_alone {
            return Box::pin(self.send_at_once(content)).await;
        }
        let (answer, answered) = oneshot::channel();
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        match self.calls.try_send(Call { content, answer }) {
            Err(TrySendError::Full(call)) => Box::pin(self.calls.send(call)).await.map_err(|_| closed())?,
            sent => sent.map_err(|_| closed())?,
        }
        answered.await.map_err(|_| closed())?
    }

    async fn send_at_once(&self, content: Content) -> RedisResult<Value> {
        let script = content.script();
        let answer = self.connection.clone().send_packed_command(&content.command()).await;
        let answer = answer.and_then(Value::extract_error);
        self.run.note(script, &answer);
        answer
    }
}

/// Counts a call until it is answered, or nobody waits for the answer any more.
struct Unanswered<'a>(&'a AtomicUsize);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
