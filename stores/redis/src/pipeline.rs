//! Client-side pipelining and batching on one connection.
//!
//! A single call is sent at once. Concurrent calls gather until the background thread runs the writer. The writer then
//! sends all gathered calls in one write. It merges those that one script can make together into one call of that
//! script, because most of the cost of a call on the server is outside the script. A call that the batch script leaves
//! undone is sent again without the batch, before any later write for the same key: calls for one key keep their order,
//! except for those of one write. While earlier writes have no reply yet, the writer sleeps until enough calls have
//! gathered.

mod queue;
pub(super) mod replicas;
mod writer;

use super::{errors, url::Replicas};
use locker_core::clock::Timestamp;
use queue::{Call, LastReply, Queue};
pub(super) use queue::{Means, Payload};
use redis::{RedisError, RedisResult, Value, aio::MultiplexedConnection};
use std::{future::Future, sync::Arc};
use tokio::sync::{Semaphore, oneshot};
pub(super) use writer::MAX_WRITES;
use writer::Writer;

/// The maximum number of calls without a reply. Further callers wait.
const MAX_CALLS: usize = 8192;

/// The sending side of one connection.
#[derive(Debug)]
pub(super) struct Pipeline {
    connection: MultiplexedConnection,
    queue: Arc<Queue>,
    /// One permit for each call without a reply.
    room: Semaphore,
    last_reply: LastReply,
    replicas: Option<Replicas>,
    /// Dropped with the pipeline: then no caller waits for a reply.
    _open: oneshot::Sender<()>,
}

impl Pipeline {
    /// A pipeline over `connection`, and the future that runs its writer until the pipeline is dropped.
    pub(super) fn new(
        connection: MultiplexedConnection,
        means: Means,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (open, closed) = oneshot::channel();
        let (queue, last_reply) = (Arc::<Queue>::default(), LastReply::default());
        let writer = Writer::new(Arc::clone(&queue), last_reply.clone(), means);
        let writes_to = connection.clone();
        let writing = async move {
            tokio::select! {
                () = writer.write(writes_to) => {}
                _ = closed => {}
            }
        };
        let room = Semaphore::new(MAX_CALLS);
        (Self { connection, queue, room, last_reply, replicas: means.replicas, _open: open }, writing)
    }

    /// Returns whether a reply has come since `time`.
    pub(super) fn has_reply_since(&self, time: Timestamp) -> bool {
        self.last_reply.is_since(time)
    }

    /// Sends a call, and returns the reply of the server.
    pub(super) async fn send(&self, payload: Payload) -> RedisResult<Value> {
        let is_single = self.room.available_permits() == MAX_CALLS;
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let _room = match self.room.try_acquire() {
            Ok(permit) => permit,
            Err(_) => Box::pin(self.room.acquire()).await.map_err(|_| closed())?,
        };
        if is_single || matches!(payload, Payload::Asking(_)) {
            return Box::pin(self.send_now(payload)).await;
        }
        let (reply, replied) = oneshot::channel();
        self.queue.push(Call { payload, reply });
        replied.await.map_err(|_| closed())?
    }

    async fn send_now(&self, payload: Payload) -> RedisResult<Value> {
        let replicas = self.replicas.filter(|_| payload.is_promise());
        let reply = match (&payload, replicas) {
            (Payload::Asking(_), _) | (_, Some(_)) => Box::pin(self.send_with(&payload, replicas)).await,
            _ => self.connection.clone().send_packed_command(&payload.command()).await,
        };
        let reply = reply.and_then(Value::extract_error);
        if !reply.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
            self.last_reply.record();
        }
        reply
    }

    /// Sends a call in one write with what belongs to it: `ASKING` before it, and `WAIT` for the replicas behind it.
    async fn send_with(&self, payload: &Payload, replicas: Option<Replicas>) -> RedisResult<Value> {
        let mut pipeline = redis::Pipeline::with_capacity(3);
        if matches!(payload, Payload::Asking(_)) {
            pipeline.cmd("ASKING");
        }
        let asks = !pipeline.is_empty();
        pipeline.add_command(payload.command());
        if let Some(replicas) = replicas {
            pipeline.add_command(replicas::wait(replicas));
        }
        let replies = self.connection.clone().send_packed_commands(&pipeline, 0, pipeline.len()).await?;
        let mut replies = replies.into_iter();
        let mut next = || replies.next().unwrap_or(Value::Nil);
        // The user may lack the permission for `ASKING`: then the server refers the call to another node.
        let asking = if asks { next().extract_error() } else { Ok(Value::Nil) };
        let reply = next().extract_error();
        if reply.as_ref().is_err_and(errors::is_about_a_slot) {
            asking?;
        }
        match replicas {
            Some(replicas) => replicas::accept(replicas, reply, &replicas::acknowledged(next())),
            None => reply,
        }
    }
}

#[cfg(test)]
mod tests;
