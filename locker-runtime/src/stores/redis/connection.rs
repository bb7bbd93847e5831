//! The connections of this process to one server.
//!
//! The background thread drives the main connection, for commands and messages. In addition, each runtime of callers
//! has a local connection, for commands only. A message and a reply may overtake each other.

use super::{
    errors, handshake,
    pipeline::{self, Payload, Pipeline},
    push_receiver::{PushReceiver, PushSink},
    script::Invocation,
};
use crate::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    panics,
    runtimes::PerRuntime,
};
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use std::{
    mem::replace,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// The settings for connecting.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) client: Client,
    /// The address without user and password, for messages.
    pub(super) address: String,
    pub(super) channel: String,
    /// The timeout of the first connection.
    pub(super) connect_timeout: Duration,
    /// The timeout of later connections: holders cannot wait long.
    pub(super) reconnect_timeout: Duration,
    /// The timeout of one reply.
    pub(super) command_timeout: Duration,
    pub(super) checks: handshake::Checks,
    pub(super) receiver: Arc<PushReceiver>,
    /// Whether the server keeps all scripts, as far as this process knows.
    pub(super) knows_scripts: AtomicBool,
}

/// The state of the main connection.
#[derive(Clone, Debug)]
pub(super) enum Status {
    Connecting,
    Up(Arc<Connection>),
    Down(Error),
}

/// The reply of the server, if it came in time.
pub(super) type Replied = Result<RedisResult<Value>>;

/// A connection.
pub(super) struct Connection {
    pipeline: Pipeline,
    broken: Arc<Notify>,
    since: Timestamp,
    /// Two round trips, as measured while connecting. A shorter silence proves nothing.
    silence_limit: Duration,
    /// The connections of callers' runtimes. They end with this one, because they may lead to a former master.
    local: PerRuntime<Connection>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Calls a script, in one command with others if possible. Waits for the reply until `by`.
    pub(super) fn run(&self, invocation: &Arc<Invocation>, by: Timestamp) -> impl Future<Output = Replied> {
        self.send(Payload::Script(Arc::clone(invocation), invocation.batch()), by)
    }

    /// Calls a script with its whole text, for a server that does not know it.
    pub(super) fn run_in_full(
        &self,
        invocation: &Arc<Invocation>,
        by: Timestamp,
    ) -> impl Future<Output = Replied> {
        self.send(Payload::InFull(Arc::clone(invocation)), by)
    }

    /// Sends one command. Waits for the reply until `by`.
    pub(super) fn call(&self, command: Cmd, by: Timestamp) -> impl Future<Output = Replied> {
        self.send(Payload::Command(command), by)
    }

    async fn send(&self, payload: Payload, by: Timestamp) -> Replied {
        let sent = Timestamp::now();
        tokio::select! {
            biased;
            reply = self.pipeline.send(payload) => {
                if reply.as_ref().is_err_and(|error| self.is_ended_by(error)) {
                    self.broken.notify_one();
                }
                Ok(reply)
            }
            () = background::sleep_from(sent, by) => {
                let limit = by.since(sent);
                if limit >= self.silence_limit && !self.pipeline.has_reply_since(sent) {
                    self.broken.notify_one();
                }
                Err(errors::lost(&format!("waited {limit:?}")))
            }
        }
    }

    /// Returns whether a new connection is needed. This one may be broken, or lead to a former master: then the address
    /// leads to the new master sooner or later.
    fn is_ended_by(&self, error: &RedisError) -> bool {
        let is_old = || Timestamp::now() > self.since + REPLICA_RETRY;
        error.is_unrecoverable_error() || (errors::is_of_a_replica(error) && is_old())
    }
}

/// The minimum life of a connection to a replica.
const REPLICA_RETRY: Duration = Duration::from_secs(1);

/// A handle to the current connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionHandle {
    status: watch::Receiver<Status>,
    connector: Arc<Connector>,
}

impl ConnectionHandle {
    /// Keeps a connection open until the last handle is dropped.
    pub(super) fn open(connector: Connector) -> Self {
        let (sender, status) = watch::channel(Status::Connecting);
        let connector = Arc::new(connector);
        background::spawn(keep_connected(Arc::clone(&connector), sender));
        Self { status, connector }
    }

    /// Returns the local connection of the caller's runtime, or the [`main`](Self::main) one if there is none.
    pub(super) async fn local(&self, limit: Duration) -> Result<Arc<Connection>> {
        let main = self.main(limit).await?;
        let local = main.local.get(|| Arc::clone(&self.connector).connect_local()).await;
        Ok(local.unwrap_or(main))
    }

    /// Waits up to `limit` for the main connection. After any error, nothing was sent.
    pub(super) async fn main(&self, limit: Duration) -> Result<Arc<Connection>> {
        match &*self.status.borrow() {
            Status::Up(connection) => return Ok(Arc::clone(connection)),
            Status::Down(error) if !error.is_temporary() => return Err(error.clone().unsent()),
            _ => {}
        }
        Box::pin(self.wait(limit)).await
    }

    /// Records that the server has lost scripts. Returns `false` if that was known.
    pub(super) fn forget_scripts(&self) -> bool {
        self.connector.knows_scripts.swap(false, Ordering::AcqRel)
    }

    /// Returns the reason for a missing connection.
    pub(super) fn outage(&self) -> Option<Error> {
        match &*self.status.borrow() {
            Status::Up(_) => None,
            Status::Down(error) => Some(error.clone()),
            Status::Connecting => Some(Error::new(
                ErrorKind::Unavailable,
                format!("no connection to {}", self.connector.address),
            )),
        }
    }

    /// Returns how long a reply may take, with some time for busy machines. Returns zero without a connection.
    pub(super) fn expected_rtt(&self) -> Duration {
        const BUSY: Duration = Duration::from_millis(100);
        match &*self.status.borrow() {
            Status::Up(connection) => connection.silence_limit.max(BUSY),
            _ => Duration::ZERO,
        }
    }

    async fn wait(&self, limit: Duration) -> Result<Arc<Connection>> {
        let mut status = self.status.clone();
        tokio::select! {
            biased;
            () = attempt_ended(&mut status) => {}
            () = background::sleep(limit) => {}
        }
        let status = status.borrow();
        match &*status {
            Status::Up(connection) => Ok(Arc::clone(connection)),
            Status::Down(error) => Err(error.clone().unsent()),
            Status::Connecting => Err(Error::new(
                ErrorKind::Unavailable,
                format!("no connection to {} within {limit:?}", self.connector.address),
            )),
        }
    }
}

/// Waits for the end of the current attempt to connect.
async fn attempt_ended(status: &mut watch::Receiver<Status>) {
    if matches!(*status.borrow_and_update(), Status::Up(_)) {
        return;
    }
    while status.changed().await.is_ok() {
        if !matches!(*status.borrow_and_update(), Status::Connecting) {
            return;
        }
    }
}

/// Connects, and connects again after each end of the connection.
async fn keep_connected(connector: Arc<Connector>, status: watch::Sender<Status>) {
    let (mut backoff, mut is_reconnect) = (Backoff::default(), false);
    while !status.is_closed() {
        match connector.connect(is_reconnect).await {
            Ok(connection) => {
                backoff = Backoff::default();
                set_status(&status, Status::Up(Arc::clone(&connection)));
                // Before the first connection there is no hold that the server may have lost.
                if replace(&mut is_reconnect, true) {
                    connector.receiver.resync();
                } else {
                    connector.receiver.wake_waiters();
                }
                tokio::select! {
                    () = connection.broken.notified() => {}
                    () = status.closed() => {}
                }
                set_status(&status, Status::Connecting);
            }
            Err(error) => {
                set_status(&status, Status::Down(error));
                tokio::select! {
                    () = background::sleep(backoff.next_delay()) => {}
                    () = status.closed() => {}
                }
            }
        }
    }
}

fn set_status(sender: &watch::Sender<Status>, status: Status) {
    panics::contain(|| sender.send_replace(status));
}

impl Connector {
    /// Opens the main connection.
    async fn connect(&self, is_reconnect: bool) -> Result<Arc<Connection>> {
        let limit = if is_reconnect { self.reconnect_timeout } else { self.connect_timeout };
        self.within(limit, self.set_up()).await
    }

    /// Opens a local connection on the current runtime. The returned future ends with it.
    async fn connect_local(self: Arc<Self>) -> Option<(Arc<Connection>, impl Future<Output = ()>)> {
        let (multiplexed, broken, round_trip) =
            self.within(self.reconnect_timeout, self.dial()).await.ok()?;
        let until = Arc::clone(&broken);
        Some((self.connection(multiplexed, broken, round_trip), async move { until.notified().await }))
    }

    async fn within<T>(&self, limit: Duration, connecting: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = connecting => result,
            () = background::sleep(limit) => Err(self.failed(&format!("nothing heard within {limit:?}"))),
        }
    }

    async fn set_up(&self) -> Result<Arc<Connection>> {
        let (mut multiplexed, broken, round_trip) = self.dial().await?;
        self.checks.run(&mut multiplexed, &self.channel).await?;
        let loaded = handshake::load_scripts(&mut multiplexed).await?;
        self.knows_scripts.store(loaded, Ordering::Release);
        let subscribing = Timestamp::now();
        multiplexed.subscribe(&self.channel).await.map_err(|error| self.refused(&error))?;
        // The shorter of two measurements: a busy moment may have delayed one of them.
        let round_trip = round_trip.min(Timestamp::now().since(subscribing));
        Ok(self.connection(multiplexed, broken, round_trip))
    }

    /// Connects to a master. Returns the connection, a notification of its end, and the round-trip time.
    async fn dial(&self) -> Result<(MultiplexedConnection, Arc<Notify>, Duration)> {
        let broken = Arc::new(Notify::new());
        let sink = PushSink { receiver: Arc::clone(&self.receiver), broken: Arc::clone(&broken) };
        // This module has its own timeouts, which also work under executors other than tokio's.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(pipeline::MAX_WRITES)
            .set_push_sender(sink);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut multiplexed = connected.map_err(|error| self.refused(&error))?;
        let greeting = Timestamp::now();
        handshake::greet(&mut multiplexed).await?;
        Ok((multiplexed, broken, Timestamp::now().since(greeting)))
    }

    fn connection(
        &self,
        multiplexed: MultiplexedConnection,
        broken: Arc<Notify>,
        round_trip: Duration,
    ) -> Arc<Connection> {
        let silence_limit = self.command_timeout.min(round_trip * 2);
        let (pipeline, writing) = Pipeline::new(multiplexed);
        // The writer runs on the runtime that drives the connection.
        tokio::spawn(writing);
        let (since, local) = (Timestamp::now(), PerRuntime::default());
        Arc::new(Connection { pipeline, broken, since, silence_limit, local })
    }

    fn refused(&self, error: &RedisError) -> Error {
        handshake::explain(error)
            .unwrap_or_else(|| self.failed(&error.to_string()))
            .with_source(error.clone())
    }

    fn failed(&self, why: &str) -> Error {
        let hint = if self.address.starts_with("rediss:") { " (does this port speak TLS?)" } else { "" };
        Error::new(ErrorKind::Unavailable, format!("cannot connect to {}: {why}{hint}", self.address))
    }
}
