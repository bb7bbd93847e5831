//! What goes out on a connection.
//!
//! A call that is alone goes out at once. Others gather until the background thread comes round to them. Then
//! all that are there are written at once, and those that one script can make together become one call of it: what a
//! call costs the server is mostly what comes before and after its work.

use super::{
    errors,
    script::{Batch, Invocation},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};
use std::{
    future::Future,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
};

/// How many calls may wait to be written before their senders do.
const WAITING: usize = 4096;

/// How many calls are written at once.
const AT_ONCE: usize = 512;

/// How many a script makes together: the server does nothing else meanwhile.
const TOGETHER: usize = 64;

/// How often is written before an answer comes. The fewer, the more calls gather meanwhile; with two the server has
/// work while the answers to what it did before are on their way.
pub(super) const UNANSWERED: usize = 2;

type Answer = oneshot::Sender<RedisResult<Value>>;

/// What a call is made of.
#[derive(Debug)]
pub(super) enum Content {
    Command(Cmd),
    /// A script by its digest, and by what it may be called together with others.
    Script(Arc<Invocation>, Option<&'static Batch>),
}

impl Content {
    /// The command that makes this call alone.
    fn command(self) -> Cmd {
        match self {
            Self::Command(command) => command,
            Self::Script(invocation, _) => invocation.by_digest(),
        }
    }
}

/// A call on its way out.
#[derive(Debug)]
struct Call {
    content: Content,
    answer: Answer,
}

/// Where calls are left.
#[derive(Debug)]
pub(super) struct Outbox {
    connection: MultiplexedConnection,
    calls: mpsc::Sender<Call>,
    /// How many have not been answered yet.
    unanswered: AtomicUsize,
    /// Gone with the outbox: nobody waits for answers any more.
    _open: oneshot::Sender<()>,
}

impl Outbox {
    /// An outbox, and what empties it over `connection` for as long as there is the outbox.
    pub(super) fn new(connection: MultiplexedConnection) -> (Self, impl Future<Output = ()> + Send) {
        let ((sender, calls), (open, closed)) = (mpsc::channel(WAITING), oneshot::channel());
        let writer = Writer { connection: connection.clone(), apart: AtomicBool::new(false) };
        let writing = async move {
            tokio::select! {
                () = writer.write(calls) => {}
                _ = closed => {}
            }
        };
        (Self { connection, calls: sender, unanswered: AtomicUsize::new(0), _open: open }, writing)
    }

    /// What the server answers; nil if a call that may be made with others was left undone.
    ///
    /// Polled once, the call is in line: what is sent later comes after it.
    pub(super) async fn send(&self, content: Content) -> RedisResult<Value> {
        let is_alone = self.unanswered.fetch_add(1, Ordering::Relaxed) == 0;
        let _answered = Unanswered(&self.unanswered);
        if is_alone {
            let answer = self.connection.clone().send_packed_command(&content.command()).await;
            return answer.and_then(Value::extract_error);
        }
        let (answer, answered) = oneshot::channel();
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        self.calls.send(Call { content, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

/// Counts a call until it is answered, or nobody waits for the answer any more.
struct Unanswered<'a>(&'a AtomicUsize);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What empties an outbox.
struct Writer {
    connection: MultiplexedConnection,
    /// The server takes no calls that are made together: keys of several names in one call are too much for some
    /// that stand before a cluster.
    apart: AtomicBool,
}

impl Writer {
    async fn write(&self, mut calls: mpsc::Receiver<Call>) {
        let (mut taken, mut unanswered) = (Vec::with_capacity(AT_ONCE), FuturesUnordered::new());
        loop {
            tokio::select! {
                count = calls.recv_many(&mut taken, AT_ONCE), if unanswered.len() < UNANSWERED => {
                    if count == 0 {
                        return;
                    }
                    let mut sending = Box::pin(self.send(gather(taken.drain(..), self.apart.load(Ordering::Relaxed))));
                    // The first poll puts it in line.
                    if unconstrained(sending.as_mut()).now_or_never().is_none() {
                        unanswered.push(sending);
                    }
                }
                Some(()) = unanswered.next() => {}
            }
        }
    }

    async fn send(&self, parcels: Vec<Parcel>) {
        let mut connection = self.connection.clone();
        let (mut pipeline, mut senders) = (redis::Pipeline::with_capacity(parcels.len()), Vec::new());
        for parcel in parcels {
            let (command, sender) = parcel.open();
            pipeline.add_command(command);
            senders.push(sender);
        }
        if senders.is_empty() {
            return;
        }
        match connection.send_packed_commands(&pipeline, 0, senders.len()).await {
            Ok(answers) => {
                senders.into_iter().zip(answers).for_each(|(sender, answer)| self.answer(sender, answer));
            }
            Err(error) => {
                for answer in senders.into_iter().flat_map(Senders::all) {
                    drop(answer.send(Err(error.clone())));
                }
            }
        }
    }

    fn answer(&self, senders: Senders, answer: Value) {
        let answer = answer.extract_error();
        let (batch, senders) = match senders {
            Senders::One(sender) => return drop(sender.send(answer)),
            Senders::Many(batch, senders) => (batch, senders),
        };
        let mut answers = match answer {
            Ok(Value::Array(answers)) => answers,
            Ok(_) => Vec::new(),
            Err(error) => {
                if errors::is_unknown_script(&error) {
                    batch.forget();
                } else if !errors::certain(&error).is_temporary() {
                    self.apart.store(true, Ordering::Relaxed);
                }
                Vec::new()
            }
        }
        .into_iter();
        for sender in senders {
            let answer = answers.next().filter(|answer| *answer != Value::BulkString(Vec::new()));
            drop(sender.send(Ok(answer.unwrap_or(Value::Nil))));
        }
    }
}

/// Puts together what can be made together, but not past what cannot; nothing if all is to be kept `apart`.
fn gather(calls: impl Iterator<Item = Call>, apart: bool) -> Vec<Parcel> {
    let (mut parcels, mut open) = (Vec::<Parcel>::new(), 0);
    // Nobody waits for the others any more, and nothing of them has been sent.
    for Call { content, answer } in calls.filter(|call| !call.answer.is_closed()) {
        match content {
            Content::Script(invocation, Some(batch)) if !apart => {
                let fellows = parcels[open..].iter_mut().find_map(|parcel| parcel.of(batch));
                match fellows {
                    Some(fellows) => fellows.push((invocation, answer)),
                    None => parcels.push(Parcel::Many(batch, vec![(invocation, answer)])),
                }
            }
            content => parcels.push(Parcel::One(content.command(), answer)),
        }
        if matches!(parcels.last(), Some(Parcel::One(..))) {
            open = parcels.len();
        }
    }
    parcels
}

/// What one command does.
enum Parcel {
    One(Cmd, Answer),
    Many(&'static Batch, Vec<(Arc<Invocation>, Answer)>),
}

/// Who waits for the answer to one command.
enum Senders {
    One(Answer),
    Many(&'static Batch, Vec<Answer>),
}

impl Parcel {
    /// The calls that `batch` makes here.
    fn of(&mut self, batch: &'static Batch) -> Option<&mut Vec<(Arc<Invocation>, Answer)>> {
        match self {
            Self::Many(own, calls) if ptr::eq(*own, batch) && calls.len() < TOGETHER => Some(calls),
            _ => None,
        }
    }

    fn open(self) -> (Cmd, Senders) {
        match self {
            Self::One(command, sender) => (command, Senders::One(sender)),
            Self::Many(batch, mut calls) => {
                if calls.len() == 1
                    && let Some((invocation, sender)) = calls.pop()
                {
                    return (invocation.by_digest(), Senders::One(sender));
                }
                let invocations: Vec<_> = calls.iter().map(|(invocation, _)| &**invocation).collect();
                let command = batch.command(&invocations);
                (command, Senders::Many(batch, calls.into_iter().map(|(_, sender)| sender).collect()))
            }
        }
    }
}

impl Senders {
    fn all(self) -> Vec<Answer> {
        match self {
            Self::One(sender) => vec![sender],
            Self::Many(_, senders) => senders,
        }
    }
}
