//! The writer of a pipeline: it merges calls into batches and sends them.
//!
//! It sends the first calls at once. While writes have no reply yet, it waits until enough calls have gathered for one
//! more write. A batch script leaves a call undone that is not the common case. The writer sends such a call again,
//! without the batch, before all other calls. Until the reply to a batch has come, it holds back later calls for the
//! keys of that batch.

use super::queue::{Call, LastReply, Means, Payload, Queue};
use super::replicas;
use crate::{errors, script::BatchScript, slots::slot_of, url::Replicas};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use locker_core::key::Key;
use redis::{RedisResult, Value, aio::MultiplexedConnection};
use std::{
    collections::{HashSet, VecDeque},
    ptr,
    sync::Arc,
};
use tokio::task::unconstrained;

/// The maximum number of calls in one write.
const MAX_WRITE: usize = 512;

/// The maximum number of calls in one batch: the server does nothing else while the script runs.
const MAX_BATCH: usize = 64;

/// The maximum number of writes without a reply.
pub(crate) const MAX_WRITES: usize = 4;

/// The writer of a pipeline.
#[derive(Default)]
pub(super) struct Writer {
    /// The calls to write next, in this order.
    pending: VecDeque<Call>,
    /// The calls after them.
    queue: Arc<Queue>,
    /// The keys of batches without a reply. Later calls for them are held back, so that they do not overtake a call
    /// that has to be sent again.
    batched_keys: HashSet<Key>,
    /// The calls that are held back until a reply comes. They come before all pending calls.
    held_back: VecDeque<Call>,
    /// The number of calls that were written and have no reply.
    unanswered: usize,
    /// The batch scripts that the server did not know at their last call. Their next call has the whole text.
    unknown: Vec<&'static BatchScript>,
    last_reply: LastReply,
    /// Whether the server refuses batches. Some proxies of a cluster refuse calls with keys of several slots.
    refuses_batches: bool,
    means: Means,
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, last_reply: LastReply, means: Means) -> Self {
        Self { queue, last_reply, means, ..Self::default() }
    }

    /// Writes calls until the future is dropped.
    pub(super) async fn write(mut self, connection: MultiplexedConnection) {
        let mut writes = FuturesUnordered::new();
        loop {
            let wanted = self.wanted(writes.len());
            tokio::select! {
                () = self.queue.until(wanted), if wanted <= MAX_WRITE => {}
                Some((frames, replies)) = writes.next() => self.finish(frames, replies),
            }
            self.queue.take(MAX_WRITE.saturating_sub(self.pending.len()), &mut self.pending);
            let frames = if self.wanted(writes.len()) == 0 { self.gather() } else { Vec::new() };
            if !frames.is_empty() {
                let mut sending = Box::pin(send(connection.clone(), self.commands(&frames), frames));
                // The first poll queues the write at the connection, so that writes keep their order.
                match unconstrained(sending.as_mut()).now_or_never() {
                    Some((frames, replies)) => self.finish(frames, replies),
                    None => writes.push(sending),
                }
            }
        }
    }

    /// Returns how many more calls the next write needs while `writes` have no reply. Many small writes would cost more
    /// than a few large ones, and several writes keep the server busy while this process handles replies. There are
    /// never more pending calls than one write takes, so that a full write is always enough.
    fn wanted(&self, writes: usize) -> usize {
        match writes {
            0 => 1_usize.saturating_sub(self.pending.len()),
            writes if writes >= self.max_writes() => usize::MAX,
            _ => self.unanswered.div_ceil(2).clamp(1, MAX_WRITE).saturating_sub(self.pending.len()),
        }
    }

    /// The maximum number of writes without a reply. A write behind one that waits for replicas would wait as well.
    fn max_writes(&self) -> usize {
        if self.means.replicas.is_some() { 1 } else { MAX_WRITES }
    }

    /// Takes the pending calls that can be written now. Calls are batched, but not across a call that cannot be.
    fn gather(&mut self) -> Vec<Frame> {
        let (mut frames, mut open) = (Vec::<Frame>::new(), 0);
        // In a cluster most batches are of one call.
        let most = if self.means.by_slot { 1 } else { self.pending.len().min(MAX_BATCH) };
        for call in self.pending.drain(..) {
            if call.reply.is_closed() {
                // The caller has given up, and nothing of the call was sent.
                continue;
            }
            if call.payload.key().is_some_and(|key| self.batched_keys.contains(key)) {
                self.held_back.push_back(call);
                continue;
            }
            match call.payload {
                Payload::Script(ref invocation, Some(batch)) if !self.refuses_batches => {
                    let slot = if self.means.by_slot { slot_of(invocation.key().as_str()) } else { 0 };
                    let mut open = frames[open..].iter_mut();
                    if let Some(calls) = open.find_map(|frame| frame.batch_of(batch, slot)) {
                        calls.push(call);
                    } else {
                        let mut calls = Vec::with_capacity(most);
                        calls.push(call);
                        frames.push(Frame::Batch(batch, slot, calls));
                    }
                }
                _ => {
                    frames.push(Frame::Single(call));
                    open = frames.len();
                }
            }
        }
        for frame in &mut frames {
            frame.seal();
            self.unanswered += frame.len();
            self.batched_keys.extend(frame.batched_keys().cloned());
        }
        frames
    }

    /// Returns the commands of `frames`.
    fn commands(&mut self, frames: &[Frame]) -> redis::Pipeline {
        let mut pipeline = redis::Pipeline::with_capacity(frames.len() + 1);
        for frame in frames {
            pipeline.add_command(match frame {
                Frame::Single(call) => call.payload.command(),
                Frame::Batch(batch, _, calls) => {
                    let known = self.unknown.len();
                    self.unknown.retain(|unknown| !ptr::eq(*unknown, *batch));
                    let invocations: Vec<_> =
                        calls.iter().filter_map(|call| call.payload.invocation()).collect();
                    batch.command(&invocations, self.unknown.len() < known)
                }
            });
        }
        if let Some(replicas) = self.waits_for(frames) {
            pipeline.add_command(replicas::wait(replicas));
        }
        pipeline
    }

    /// Returns the replicas that the replies of a write wait for.
    fn waits_for(&self, frames: &[Frame]) -> Option<Replicas> {
        self.means.replicas.filter(|_| frames.iter().any(Frame::is_promise))
    }

    /// Passes the replies to a write on to its callers.
    fn finish(&mut self, frames: Vec<Frame>, replies: RedisResult<Vec<Value>>) {
        for frame in &frames {
            self.unanswered -= frame.len();
            for key in frame.batched_keys() {
                self.batched_keys.remove(key);
            }
        }
        let mut pending = std::mem::take(&mut self.held_back);
        pending.append(&mut self.pending);
        self.pending = pending;
        let waits_for = self.waits_for(&frames);
        let (replies, acknowledged) = match replies {
            Ok(mut replies) => {
                self.last_reply.record();
                let last = replies.pop_if(|_| waits_for.is_some());
                (replies, last.map(replicas::acknowledged))
            }
            Err(error) => {
                for call in frames.into_iter().flat_map(Frame::calls) {
                    call.finish(Err(error.clone()));
                }
                return;
            }
        };
        let checked = |call: &Call, reply: RedisResult<Value>| match (waits_for, &acknowledged) {
            (Some(replicas), Some(acknowledged)) if call.payload.is_promise() => {
                replicas::accept(replicas, reply, acknowledged)
            }
            _ => reply,
        };
        let mut undone = Vec::new();
        for (frame, reply) in frames.into_iter().zip(replies) {
            match frame {
                Frame::Single(call) => {
                    let reply = checked(&call, reply.extract_error());
                    call.finish(reply);
                }
                Frame::Batch(batch, _, calls) => {
                    let mut replies = self.batch_replies(batch, reply).into_iter();
                    for call in calls {
                        match replies.next().filter(|reply| *reply != Value::BulkString(Vec::new())) {
                            Some(done) => {
                                let reply = checked(&call, Ok(done));
                                call.finish(reply);
                            }
                            None => undone.push(call.after_batch()),
                        }
                    }
                }
            }
        }
        undone.into_iter().rev().for_each(|call| self.pending.push_front(call));
    }

    /// Returns the replies to the calls of a batch, or nothing if the server has refused the batch.
    fn batch_replies(&mut self, batch: &'static BatchScript, reply: Value) -> Vec<Value> {
        match reply.extract_error() {
            Ok(Value::Array(replies)) => replies,
            Ok(_) => Vec::new(),
            Err(error) => {
                if errors::is_unknown_script(&error) {
                    self.unknown.push(batch);
                } else if errors::is_about_several_slots(&error) {
                    self.refuses_batches = true;
                }
                Vec::new()
            }
        }
    }
}

/// Sends `frames` in one write, and returns them with the replies.
async fn send(
    mut connection: MultiplexedConnection,
    pipeline: redis::Pipeline,
    frames: Vec<Frame>,
) -> (Vec<Frame>, RedisResult<Vec<Value>>) {
    let replies = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await;
    (frames, replies)
}

/// The calls of one command.
enum Frame {
    Single(Call),
    /// Calls of one slot, if that counts.
    Batch(&'static BatchScript, u16, Vec<Call>),
}

impl Frame {
    /// Returns the calls of this frame if it is one of `batch` with room for more.
    fn batch_of(&mut self, batch: &'static BatchScript, slot: u16) -> Option<&mut Vec<Call>> {
        match self {
            Self::Batch(own, of, calls) if ptr::eq(*own, batch) && *of == slot && calls.len() < MAX_BATCH => {
                Some(calls)
            }
            _ => None,
        }
    }

    /// Makes a batch of one call a single call. No calls are added after that.
    fn seal(&mut self) {
        if let Self::Batch(_, _, calls) = self
            && calls.len() == 1
            && let Some(call) = calls.pop()
        {
            *self = Self::Single(call);
        }
    }

    fn is_promise(&self) -> bool {
        match self {
            Self::Single(call) => call.payload.is_promise(),
            Self::Batch(_, _, calls) => calls.iter().any(|call| call.payload.is_promise()),
        }
    }

    fn len(&self) -> usize {
        if let Self::Batch(_, _, calls) = self { calls.len() } else { 1 }
    }

    /// Returns the keys of a batch.
    fn batched_keys(&self) -> impl Iterator<Item = &Key> {
        let calls = if let Self::Batch(_, _, calls) = self { &calls[..] } else { &[] };
        calls.iter().filter_map(|call| call.payload.key())
    }

    fn calls(self) -> impl Iterator<Item = Call> {
        let (single, batch) = match self {
            Self::Single(call) => (Some(call), Vec::new()),
            Self::Batch(_, _, calls) => (None, calls),
        };
        single.into_iter().chain(batch)
    }
}

#[cfg(test)]
mod tests;
