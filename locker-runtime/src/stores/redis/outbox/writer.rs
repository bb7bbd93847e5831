//! What empties an outbox.

use super::{Call, Content, Heard, Queue};
use crate::{
    key::Key,
    stores::redis::{errors, script::Batch},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use redis::{Pipeline, RedisResult, Value, aio::MultiplexedConnection};
use std::{
    collections::{HashSet, VecDeque},
    ptr,
    sync::Arc,
};
use tokio::task::unconstrained;

/// How many calls are written at once.
const AT_ONCE: usize = 512;

/// How many a script makes together: the server does nothing else meanwhile.
const TOGETHER: usize = 64;

/// How often is written before an answer comes, at most.
pub(in super::super) const UNANSWERED: usize = 4;

/// What empties an outbox.
#[derive(Default)]
pub(super) struct Writer {
    /// What is to be written, in this order.
    line: VecDeque<Call>,
    /// What comes after it.
    queue: Arc<Queue>,
    /// The keys that calls made together on their way are about. What else is about them is held back: a call that
    /// has to be made again must not be overtaken.
    asked: HashSet<Key>,
    /// What is held back until an answer comes; before anything in line.
    held: VecDeque<Call>,
    /// How many have been written and not answered.
    on_their_way: usize,
    /// Scripts that the server did not know when they were called last: they go out with their text.
    unknown: Vec<&'static Batch>,
    heard: Heard,
    /// The server takes no calls that are made together: keys of several slots in one call are too much for some
    /// that stand before a cluster.
    apart: bool,
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, heard: Heard) -> Self {
        Self { queue, heard, ..Self::default() }
    }

    /// Writes what comes.
    pub(super) async fn write(mut self, connection: MultiplexedConnection) {
        let mut unanswered = FuturesUnordered::new();
        loop {
            let wanted = self.wanted(unanswered.len());
            tokio::select! {
                () = self.queue.until(wanted), if wanted <= AT_ONCE => {}
                Some((parcels, answers)) = unanswered.next() => self.answer(parcels, answers),
            }
            self.queue.take(AT_ONCE.saturating_sub(self.line.len()), &mut self.line);
            let parcels = if self.wanted(unanswered.len()) == 0 { self.gather() } else { Vec::new() };
            if !parcels.is_empty() {
                let mut sending = Box::pin(send(connection.clone(), self.pipeline(&parcels), parcels));
                // The first poll puts it in line.
                match unconstrained(sending.as_mut()).now_or_never() {
                    Some((parcels, answers)) => self.answer(parcels, answers),
                    None => unanswered.push(sending),
                }
            }
        }
    }

    /// How many more calls have to be there for the next write, while so many have no answer yet. What follows at once
    /// would be little, and then again little. With several on their way the server has work while answers are worked
    /// on. A line never gets longer than what is written at once: a full one is enough.
    fn wanted(&self, unanswered: usize) -> usize {
        match unanswered {
            0 => 1_usize.saturating_sub(self.line.len()),
            UNANSWERED.. => usize::MAX,
            _ => self.on_their_way.div_ceil(2).clamp(1, AT_ONCE).saturating_sub(self.line.len()),
        }
    }

    /// Takes from the line what can be written now. What can be made together is put together, but not past what
    /// cannot.
    fn gather(&mut self) -> Vec<Parcel> {
        let (mut parcels, mut open) = (Vec::<Parcel>::new(), 0);
        for call in self.line.drain(..) {
            if call.answer.is_closed() {
                // Nobody waits for it any more, and nothing of it has been sent.
                continue;
            }
            if call.content.key().is_some_and(|key| self.asked.contains(key)) {
                self.held.push_back(call);
                continue;
            }
            match call.content {
                Content::Script(_, Some(batch)) if !self.apart => {
                    match parcels[open..].iter_mut().find_map(|parcel| parcel.of(batch)) {
                        Some(fellows) => fellows.push(call),
                        None => parcels.push(Parcel::Many(batch, vec![call])),
                    }
                }
                _ => {
                    parcels.push(Parcel::One(call));
                    open = parcels.len();
                }
            }
        }
        for parcel in &mut parcels {
            parcel.seal();
            self.on_their_way += parcel.len();
            self.asked.extend(parcel.keys().cloned());
        }
        parcels
    }

    /// What `parcels` are on the wire.
    fn pipeline(&mut self, parcels: &[Parcel]) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(parcels.len());
        for parcel in parcels {
            pipeline.add_command(match parcel {
                Parcel::One(call) => call.content.command(),
                Parcel::Many(batch, calls) => {
                    let known = self.unknown.len();
                    self.unknown.retain(|unknown| !ptr::eq(*unknown, *batch));
                    let invocations: Vec<_> =
                        calls.iter().filter_map(|call| call.content.invocation()).collect();
                    batch.command(&invocations, self.unknown.len() < known)
                }
            });
        }
        pipeline
    }

    fn answer(&mut self, parcels: Vec<Parcel>, answers: RedisResult<Vec<Value>>) {
        for parcel in &parcels {
            self.on_their_way -= parcel.len();
            for key in parcel.keys() {
                self.asked.remove(key);
            }
        }
        let mut held = std::mem::take(&mut self.held);
        held.append(&mut self.line);
        self.line = held;
        let answers = match answers {
            Ok(answers) => {
                self.heard.something();
                answers
            }
            Err(error) => {
                for call in parcels.into_iter().flat_map(Parcel::calls) {
                    call.answer(Err(error.clone()));
                }
                return;
            }
        };
        let mut again = Vec::new();
        for (parcel, answer) in parcels.into_iter().zip(answers) {
            match parcel {
                Parcel::One(call) => {
                    let answer = answer.extract_error();
                    call.answer(answer);
                }
                Parcel::Many(batch, calls) => {
                    let mut answers = self.answers(batch, answer).into_iter();
                    for call in calls {
                        match answers.next().filter(|answer| *answer != Value::BulkString(Vec::new())) {
                            Some(done) => call.answer(Ok(done)),
                            None => again.push(call.apart()),
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
                    self.unknown.push(batch);
                } else if error.code() == Some("CROSSSLOT") {
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
    pipeline: Pipeline,
    parcels: Vec<Parcel>,
) -> (Vec<Parcel>, RedisResult<Vec<Value>>) {
    let answers = connection.send_packed_commands(&pipeline, 0, parcels.len()).await;
    (parcels, answers)
}

/// What one command does.
enum Parcel {
    One(Call),
    /// Those of a script that makes them together.
    Many(&'static Batch, Vec<Call>),
}

impl Parcel {
    /// The calls that `batch` makes here, while there is room for more.
    fn of(&mut self, batch: &'static Batch) -> Option<&mut Vec<Call>> {
        match self {
            Self::Many(own, calls) if ptr::eq(*own, batch) && calls.len() < TOGETHER => Some(calls),
            _ => None,
        }
    }

    /// Nothing is added any more: what has remained alone is made by itself.
    fn seal(&mut self) {
        if let Self::Many(_, calls) = self
            && calls.len() == 1
            && let Some(call) = calls.pop()
        {
            *self = Self::One(call);
        }
    }

    fn len(&self) -> usize {
        if let Self::Many(_, calls) = self { calls.len() } else { 1 }
    }

    /// What calls made together are about.
    fn keys(&self) -> impl Iterator<Item = &Key> {
        let calls = if let Self::Many(_, calls) = self { &calls[..] } else { &[] };
        calls.iter().filter_map(|call| call.content.key())
    }

    fn calls(self) -> impl Iterator<Item = Call> {
        let (one, many) = match self {
            Self::One(call) => (Some(call), Vec::new()),
            Self::Many(_, calls) => (None, calls),
        };
        one.into_iter().chain(many)
    }
}

#[cfg(test)]
mod tests;
