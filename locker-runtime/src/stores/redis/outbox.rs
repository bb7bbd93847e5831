//! What goes out on a connection.
//!
//! A call that is alone goes out at once. Others gather until the background thread comes round to them. Then
//! all that are there are written at once, and those that one script can make together become one call of it: what a
//! call costs the server is mostly what comes before and after its work. What such a script leaves undone is called by
//! itself, before anything later about the same key: calls about one key keep their order.

use super::{
    errors,
    script::{Batch, Invocation, Script},
};
use crate::{
    key::Key,
    sync::{Mutex, lock},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};
use std::{
    collections::{HashSet, VecDeque},
    future::Future,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    task::unconstrained,
};

/// How many calls may wait to be written before their senders do.
const WAITING: usize = 4096;

/// How many calls are written at once.
const AT_ONCE: usize = 512;

/// How many a script makes together: the server does nothing else meanwhile.
const TOGETHER: usize = 64;

/// How often is written before an answer comes, at most.
pub(super) const UNANSWERED: usize = 4;

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
    fn script(&self) -> Option<&'static Script> {
        match self {
            Self::Command(_) => None,
            Self::Script(invocation, _) | Self::InFull(invocation) => Some(invocation.script()),
        }
    }

    fn key(&self) -> Option<&Key> {
        match self {
            Self::Command(_) => None,
            Self::Script(invocation, _) | Self::InFull(invocation) => Some(invocation.key()),
        }
    }

    /// The command that makes this call alone.
    fn command(self) -> Cmd {
        match self {
            Self::Command(command) => command,
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
        let (writer, writes_to) = (Writer { run: run.clone(), ..Writer::default() }, connection.clone());
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

/// What empties an outbox.
#[derive(Default)]
struct Writer {
    /// What is to be written, in this order.
    line: VecDeque<Call>,
    /// The keys that calls made together on their way are about. What else is about them is held back: a call that
    /// has to be made again must not be overtaken.
    asked: HashSet<Key>,
    /// What is held back until an answer comes; before anything in line.
    held: VecDeque<Call>,
    /// How many have been written and not answered.
    on_their_way: usize,
    /// What the server has been taught over this connection.
    taught: Vec<&'static Batch>,
    run: Run,
    /// The server takes no calls that are made together: keys of several slots in one call are too much for some
    /// that stand before a cluster.
    apart: bool,
}

impl Writer {
    async fn write(mut self, connection: MultiplexedConnection, mut calls: mpsc::Receiver<Call>) {
        let (mut taken, mut unanswered) = (Vec::with_capacity(AT_ONCE), FuturesUnordered::new());
        loop {
            tokio::select! {
                count = calls.recv_many(&mut taken, AT_ONCE), if self.line.len() + self.held.len() < AT_ONCE => {
                    if count == 0 {
                        return;
                    }
                    self.line.extend(taken.drain(..));
                }
                Some((senders, answers)) = unanswered.next() => self.answer(senders, answers),
            }
            let parcels = if self.is_time(unanswered.len()) { self.gather() } else { Vec::new() };
            if !parcels.is_empty() {
                let commands = parcels.into_iter().map(|parcel| parcel.open(&mut self.taught)).collect();
                let mut sending = Box::pin(send(connection.clone(), commands));
                // The first poll puts it in line.
                match unconstrained(sending.as_mut()).now_or_never() {
                    Some((senders, answers)) => self.answer(senders, answers),
                    None => unanswered.push(sending),
                }
            }
        }
    }

    /// Whether to write while so many writes have no answer yet: what follows at once would be little, and then again
    /// little. With several on their way the server has work while answers are worked on.
    fn is_time(&self, unanswered: usize) -> bool {
        unanswered == 0 || (unanswered < UNANSWERED && self.line.len() * 2 >= self.on_their_way)
    }

    /// Takes from the line what can be written now. What can be made together is put together, but not past what
    /// cannot.
    fn gather(&mut self) -> Vec<Parcel> {
        let (mut parcels, mut open) = (Vec::<Parcel>::new(), 0);
        for call in std::mem::take(&mut self.line) {
            if call.answer.is_closed() {
                // Nobody waits for it any more, and nothing of it has been sent.
                continue;
            }
            if call.content.key().is_some_and(|key| self.asked.contains(key)) {
                self.held.push_back(call);
                continue;
            }
            let Call { content, answer } = call;
            match content {
                Content::Script(invocation, Some(batch)) if !self.apart => {
                    match parcels[open..].iter_mut().find_map(|parcel| parcel.of(batch)) {
                        Some(fellows) => fellows.push((invocation, answer)),
                        None => parcels.push(Parcel::Many(batch, vec![(invocation, answer)])),
                    }
                }
                content => {
                    let script = content.script();
                    parcels.push(Parcel::One(content.command(), script, answer));
                    open = parcels.len();
                }
            }
        }
        for parcel in &parcels {
            self.on_their_way += parcel.len();
            self.asked.extend(parcel.keys().cloned());
        }
        parcels
    }

    fn answer(&mut self, senders: Vec<Senders>, answers: RedisResult<Vec<Value>>) {
        for sender in &senders {
            self.on_their_way -= sender.len();
            for invocation in sender.invocations() {
                self.asked.remove(invocation.key());
            }
        }
        let mut held = std::mem::take(&mut self.held);
        held.append(&mut self.line);
        self.line = held;
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                for sender in senders.into_iter().flat_map(Senders::all) {
                    drop(sender.send(Err(error.clone())));
                }
                return;
            }
        };
        let mut again = Vec::new();
        for (senders, answer) in senders.into_iter().zip(answers) {
            match senders {
                Senders::One(script, sender) => {
                    let answer = answer.extract_error();
                    self.run.note(script, &answer);
                    drop(sender.send(answer));
                }
                Senders::Many(batch, calls) => {
                    let mut answers = self.answers(batch, answer).into_iter();
                    for (invocation, answer) in calls {
                        match answers.next().filter(|answer| *answer != Value::BulkString(Vec::new())) {
                            Some(done) => drop(answer.send(Ok(done))),
                            None => again.push(Call { content: Content::Script(invocation, None), answer }),
                        }
                    }
                }
            }
        }
        again.into_iter().rev().for_each(|call| self.line.push_front(call));
    }

    /// The answers to calls made together; none when the server has refused to make them.
    fn answers(&mut self, batch: &'static Batch, answer: Value) -> Vec<Value> {
        match answer.extract_error() {
            Ok(Value::Array(answers)) => answers,
            Ok(_) => Vec::new(),
            Err(error) => {
                if errors::is_unknown_script(&error) {
                    self.taught.retain(|taught| !ptr::eq(*taught, batch));
                } else if !errors::certain(&error).is_temporary() {
                    self.apart = true;
                }
                Vec::new()
            }
        }
    }
}

/// Writes all of it at once, and comes back with the answers and with who waits for them.
async fn send(
    mut connection: MultiplexedConnection,
    commands: Vec<(Cmd, Senders)>,
) -> (Vec<Senders>, RedisResult<Vec<Value>>) {
    let mut pipeline = redis::Pipeline::with_capacity(commands.len());
    let mut senders = Vec::with_capacity(commands.len());
    for (command, sender) in commands {
        pipeline.add_command(command);
        senders.push(sender);
    }
    let answers = connection.send_packed_commands(&pipeline, 0, senders.len()).await;
    (senders, answers)
}

/// What one command does.
enum Parcel {
    One(Cmd, Option<&'static Script>, Answer),
    Many(&'static Batch, Vec<(Arc<Invocation>, Answer)>),
}

/// Who waits for the answer to one command.
enum Senders {
    One(Option<&'static Script>, Answer),
    Many(&'static Batch, Vec<(Arc<Invocation>, Answer)>),
}

impl Parcel {
    /// The calls that `batch` makes here, while there is room for more.
    fn of(&mut self, batch: &'static Batch) -> Option<&mut Vec<(Arc<Invocation>, Answer)>> {
        match self {
            Self::Many(own, calls) if ptr::eq(*own, batch) && calls.len() < TOGETHER => Some(calls),
            _ => None,
        }
    }

    fn len(&self) -> usize {
        if let Self::Many(_, calls) = self { calls.len() } else { 1 }
    }

    /// What calls made together are about.
    fn keys(&self) -> impl Iterator<Item = &Key> {
        let calls = match self {
            Self::Many(_, calls) if calls.len() > 1 => &calls[..],
            _ => &[],
        };
        calls.iter().map(|(invocation, _)| invocation.key())
    }

    fn open(self, taught: &mut Vec<&'static Batch>) -> (Cmd, Senders) {
        match self {
            Self::One(command, script, sender) => (command, Senders::One(script, sender)),
            Self::Many(batch, mut calls) => {
                if calls.len() == 1
                    && let Some((invocation, sender)) = calls.pop()
                {
                    return (invocation.by_digest(), Senders::One(Some(invocation.script()), sender));
                }
                let invocations: Vec<_> = calls.iter().map(|(invocation, _)| &**invocation).collect();
                let is_new = !taught.iter().any(|taught| ptr::eq(*taught, batch));
                if is_new {
                    taught.push(batch);
                }
                (batch.command(&invocations, is_new), Senders::Many(batch, calls))
            }
        }
    }
}

impl Senders {
    fn len(&self) -> usize {
        if let Self::Many(_, calls) = self { calls.len() } else { 1 }
    }

    fn invocations(&self) -> impl Iterator<Item = &Invocation> {
        let calls = if let Self::Many(_, calls) = self { &calls[..] } else { &[] };
        calls.iter().map(|(invocation, _)| &**invocation)
    }

    fn all(self) -> Vec<Answer> {
        match self {
            Self::One(_, sender) => vec![sender],
            Self::Many(_, calls) => calls.into_iter().map(|(_, sender)| sender).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::lock, *};
    use crate::id::Id;
    use oneshot::Receiver;

    type Answered = Receiver<RedisResult<Value>>;

    /// A release of the lock at `key`, left in line.
    fn release(writer: &mut Writer, key: &str) -> Answered {
        let invocation = Arc::new(lock::release(&Key::new(key), Id::random(), 0));
        let (answer, answered) = oneshot::channel();
        let batch = invocation.batch();
        writer.line.push_back(Call { content: Content::Script(invocation, batch), answer });
        answered
    }

    fn other(writer: &mut Writer) -> Answered {
        let (answer, answered) = oneshot::channel();
        writer.line.push_back(Call { content: Content::Command(redis::cmd("PING")), answer });
        answered
    }

    /// How many calls are in each command that can be written now, and who waits for the answers.
    fn written(writer: &mut Writer) -> (Vec<usize>, Vec<Senders>) {
        let parcels = writer.gather();
        let senders: Vec<_> = parcels.into_iter().map(|parcel| parcel.open(&mut writer.taught).1).collect();
        let count = |senders: &Senders| match senders {
            Senders::One(..) => 1,
            Senders::Many(_, calls) => calls.len(),
        };
        (senders.iter().map(count).collect(), senders)
    }

    fn texts(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec())).collect())
    }

    fn text(answered: &mut Answered) -> Option<Value> {
        answered.try_recv().ok().map(Result::unwrap)
    }

    #[test]
    fn what_was_left_undone_is_called_again_before_what_came_later() {
        let mut writer = Writer::default();
        let (mut a, mut b) = (release(&mut writer, "a"), release(&mut writer, "b"));
        let (sizes, senders) = written(&mut writer);
        assert_eq!(sizes, [2]);
        let (mut later, _apart) = (release(&mut writer, "a"), release(&mut writer, "c"));
        assert_eq!(written(&mut writer).0, [1], "the one about another key");
        writer.answer(senders, Ok(vec![texts(&["", "released"])]));
        assert_eq!((text(&mut a), text(&mut b)), (None, Some(Value::BulkString(b"released".into()))));
        let (sizes, senders) = written(&mut writer);
        assert_eq!(sizes, [1, 1]);
        writer.answer(senders, Ok(vec![Value::Int(1), Value::Int(2)]));
        assert_eq!((text(&mut a), text(&mut later)), (Some(Value::Int(1)), Some(Value::Int(2))));
    }

    #[test]
    fn nothing_is_put_together_past_what_stands_between() {
        let mut writer = Writer::default();
        let _waiting = (release(&mut writer, "a"), release(&mut writer, "b"), other(&mut writer));
        let _behind = (release(&mut writer, "c"), release(&mut writer, "d"));
        assert_eq!(written(&mut writer).0, [2, 1, 2]);
    }

    #[test]
    fn more_is_written_only_when_much_has_gathered_beside_what_is_on_its_way() {
        let mut writer = Writer::default();
        let mut calls: Vec<_> = (0..8).map(|number| release(&mut writer, &number.to_string())).collect();
        assert!(writer.is_time(0));
        let (_, first) = written(&mut writer);
        for number in 8..11 {
            calls.push(release(&mut writer, &number.to_string()));
        }
        assert!(writer.is_time(0) && !writer.is_time(1), "three behind eight");
        calls.push(other(&mut writer));
        assert!(writer.is_time(1) && !writer.is_time(UNANSWERED), "four behind eight");
        writer.answer(first, Ok(vec![texts(&["released"; 8])]));
        assert_eq!(written(&mut writer).0, [3, 1]);
        assert_eq!(writer.on_their_way, 4);
    }

    #[test]
    fn a_script_makes_a_bounded_number_of_calls() {
        let mut writer = Writer::default();
        let _waiting: Vec<_> =
            (0..TOGETHER + 2).map(|number| release(&mut writer, &number.to_string())).collect();
        assert_eq!(written(&mut writer).0, [TOGETHER, 2]);
    }

    #[test]
    fn what_nobody_waits_for_is_not_sent() {
        let mut writer = Writer::default();
        drop((release(&mut writer, "a"), other(&mut writer)));
        assert!(writer.gather().is_empty());
        let a = release(&mut writer, "a");
        let _b = release(&mut writer, "b");
        let (_, senders) = written(&mut writer);
        drop(a);
        writer.answer(senders, Ok(vec![texts(&["", ""])]));
        assert_eq!(written(&mut writer).0, [1], "only the one that is still waited for");
    }

    #[test]
    fn a_broken_connection_is_told_to_all_and_blocks_nobody() {
        let mut writer = Writer::default();
        let mut all = [release(&mut writer, "a"), release(&mut writer, "b"), other(&mut writer)];
        let (_, senders) = written(&mut writer);
        let reset = || redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        writer.answer(senders, Err(reset()));
        assert!(all.iter_mut().all(|answered| answered.try_recv().unwrap().is_err()));
        let _a = release(&mut writer, "a");
        assert_eq!(written(&mut writer).0, [1]);
    }

    #[test]
    fn a_server_that_refuses_several_slots_is_asked_one_by_one() {
        let mut writer = Writer::default();
        let _waiting = (release(&mut writer, "a"), release(&mut writer, "b"));
        let (_, senders) = written(&mut writer);
        let refusal = redis::parse_redis_value(b"-CROSSSLOT Keys in request don't hash to the same slot\r\n");
        writer.answer(senders, Ok(vec![refusal.unwrap()]));
        let _c = release(&mut writer, "c");
        assert_eq!(written(&mut writer).0, [1, 1, 1]);
    }
}
