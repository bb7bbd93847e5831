//! The connections of this process to one server.
//!
//! The background thread drives the main connection, for commands and messages. In addition, each runtime of callers
//! has a local connection, for commands only. A message and a reply may overtake each other.

mod lookout;

use super::{
    discovery::Discovery,
    errors, handshake,
    pipeline::{self, Means, Payload, Pipeline},
    push_receiver::{PushReceiver, PushSink},
    resolver::Only,
    script::Invocation,
    server::{Server, unreachable},
    url::Replicas,
};
use futures_util::future::select_ok;
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    panics,
    runtimes::PerRuntime,
};
use redis::{AsyncConnectionConfig, Cmd, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use std::{
    net::SocketAddr,
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
    pub(super) discovery: Discovery,
    pub(super) channel: String,
    /// The timeout of the first connection.
    pub(super) connect_timeout: Duration,
    /// The timeout of later connections, at least as long: a slow network allowed the first one.
    pub(super) reconnect_timeout: Duration,
    /// The timeout of one reply.
    pub(super) command_timeout: Duration,
    pub(super) replicas: Option<Replicas>,
    /// The time between two questions for the eviction policy, beside those of each new connection.
    pub(super) eviction_interval: Option<Duration>,
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
    pub(super) server: Arc<Server>,
    /// The address that it leads to. Its name may have several.
    address: Option<SocketAddr>,
    pipeline: Pipeline,
    broken: Arc<Notify>,
    since: Timestamp,
    /// Two round trips, as measured while connecting, and the wait for replicas. A shorter silence proves nothing.
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
    pub(super) fn execute(
        &self,
        invocation: &Arc<Invocation>,
        by: Timestamp,
    ) -> impl Future<Output = Replied> {
        self.send(Payload::Script(Arc::clone(invocation), invocation.batch()), by)
    }

    /// Calls a script with its whole text, for a server that does not know it.
    pub(super) fn execute_in_full(
        &self,
        invocation: &Arc<Invocation>,
        by: Timestamp,
    ) -> impl Future<Output = Replied> {
        self.send(Payload::InFull(Arc::clone(invocation)), by)
    }

    /// Sends a call right behind `ASKING`, to a node that takes a slot over. Waits for the reply until `by`.
    pub(super) fn ask(&self, call: Payload, by: Timestamp) -> impl Future<Output = Replied> {
        self.send(Payload::Asking(Box::new(call)), by)
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
                // A former master may still say yes to what its successor does not know.
                if self.server.is_left() {
                    return Err(errors::lost("another server has become the master"));
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
        let keeping = keep_connected(Arc::clone(&connector), sender);
        let following = Arc::clone(&connector);
        background::spawn(async move {
            tokio::select! {
                () = keeping => {}
                () = following.discovery.follow() => {}
            }
        });
        Self { status, connector }
    }

    /// Returns the local connection of the caller's runtime, or the [`main`](Self::main) one if there is none.
    pub(super) async fn local(&self, limit: Duration) -> Result<Arc<Connection>> {
        let main = self.main(limit).await?;
        let open = || Arc::clone(&self.connector).connect_local(Arc::clone(&main.server), main.address);
        let local = main.local.get(open).await;
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

    /// Returns whether both are about the same connection.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.connector, &other.connector)
    }

    /// Returns the main connection if it is up.
    pub(super) fn up(&self) -> Option<Arc<Connection>> {
        if let Status::Up(connection) = &*self.status.borrow() { Some(Arc::clone(connection)) } else { None }
    }

    /// Records that the server has lost scripts. Unless that was known, it may have lost more.
    pub(super) fn scripts_are_gone(&self) {
        if self.connector.knows_scripts.swap(false, Ordering::AcqRel) {
            self.connector.receiver.resync();
        }
    }

    /// Returns the reason for a missing connection.
    pub(super) fn outage(&self) -> Option<Error> {
        match &*self.status.borrow() {
            Status::Up(_) => None,
            Status::Down(error) => Some(error.clone()),
            Status::Connecting => Some(Error::new(
                ErrorKind::Unavailable,
                format!("no connection to {}", self.connector.discovery.address()),
            )),
        }
    }

    /// Returns whether a reply came over the main connection since `time`.
    pub(super) fn has_replied_since(&self, time: Timestamp) -> bool {
        matches!(&*self.status.borrow(), Status::Up(main) if main.pipeline.has_reply_since(time))
    }

    /// Returns how long a reply may take, with some time for busy machines. Returns zero without a connection.
    pub(super) fn expected_rtt(&self) -> Duration {
        const BUSY: Duration = Duration::from_millis(100);
        self.up().map_or(Duration::ZERO, |main| main.silence_limit.max(BUSY))
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
                format!("no connection to {} within {limit:?}", self.connector.discovery.address()),
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
    let (mut backoff, mut before) = (Backoff::default(), None::<Arc<Server>>);
    while !status.is_closed() {
        let newest = connector.discovery.newest();
        match connector.connect(before.is_some()).await {
            Ok(connection) => {
                backoff = Backoff::default();
                set_status(&status, Status::Up(Arc::clone(&connection)));
                let former = before.replace(Arc::clone(&connection.server));
                if former.as_ref().is_some_and(|former| !former.is_same(&connection.server)) {
                    connector.receiver.doubt_holds();
                }
                if former.is_some() || connector.discovery.may_have_lost() {
                    connector.receiver.resync();
                } else {
                    connector.receiver.wake_waiters();
                }
                tokio::select! {
                    () = connection.broken.notified() => {}
                    () = connector.replaced(&connection) => connector.receiver.doubt_holds(),
                    // The checks of the next connection refuse the server.
                    () = connector.evicting(&connection) => {}
                    () = status.closed() => {}
                }
                if connector.discovery.may_move() {
                    connection.server.leave();
                }
                set_status(&status, Status::Connecting);
            }
            Err(error) => {
                set_status(&status, Status::Down(error));
                tokio::select! {
                    () = background::sleep(backoff.next_delay()) => {}
                    () = connector.discovery.newer_than(newest) => {}
                    () = status.closed() => {}
                }
            }
        }
    }
}

fn set_status(sender: &watch::Sender<Status>, status: Status) {
    panics::contain(|| sender.send_replace(status));
}

/// A connection that is not checked yet.
struct Line {
    multiplexed: MultiplexedConnection,
    /// Notified of its end.
    broken: Arc<Notify>,
    address: Option<SocketAddr>,
}

impl Connector {
    /// Opens the main connection.
    async fn connect(&self, is_reconnect: bool) -> Result<Arc<Connection>> {
        let limit = if is_reconnect { self.reconnect_timeout } else { self.connect_timeout };
        self.within(limit, self.set_up()).await
    }

    /// Opens a local connection on the current runtime, to the address of the main one. The returned future ends with
    /// it.
    async fn connect_local(
        self: Arc<Self>,
        server: Arc<Server>,
        address: Option<SocketAddr>,
    ) -> Option<(Arc<Connection>, impl Future<Output = ()>)> {
        let greeted = async {
            let mut line = self.dial_at(&server, address).await?;
            let greeting = Timestamp::now();
            handshake::greet(&mut line.multiplexed, self.discovery.advice()).await?;
            Ok((line, Timestamp::now().since(greeting)))
        };
        let (line, round_trip) = self.within(self.reconnect_timeout, greeted).await.ok()?;
        let until = Arc::clone(&line.broken);
        let connection = self.connection(server, line, round_trip);
        Some((connection, async move { until.notified().await }))
    }

    async fn within<T>(&self, limit: Duration, connecting: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = connecting => result,
            () = background::sleep(limit) => {
                Err(unreachable(self.discovery.address(), &format!("nothing heard within {limit:?}")))
            }
        }
    }

    async fn set_up(&self) -> Result<Arc<Connection>> {
        let server = self.discovery.server().await?;
        tokio::select! {
            connected = self.set_up_with(&server) => connected,
            () = self.discovery.has_left(&server) => {
                Err(server.unreachable("another server has become the master"))
            }
        }
    }

    async fn set_up_with(&self, server: &Arc<Server>) -> Result<Arc<Connection>> {
        let mut line = self.dial(server).await?;
        let multiplexed = &mut line.multiplexed;
        let (asking, discovery) = (Timestamp::now(), &self.discovery);
        let missing =
            self.checks.run(multiplexed, &self.channel, discovery.advice(), discovery.owner()).await?;
        let round_trip = Timestamp::now().since(asking);
        let has_all =
            missing.is_empty() || handshake::load(multiplexed, &missing, self.checks.is_strict).await?;
        self.knows_scripts.store(has_all, Ordering::Release);
        let subscribing = Timestamp::now();
        multiplexed
            .subscribe(&self.channel)
            .await
            .map_err(|error| handshake::not_connected(server, &error))?;
        // The shorter of two measurements: a busy moment may have delayed one of them.
        let round_trip = round_trip.min(Timestamp::now().since(subscribing));
        Ok(self.connection(Arc::clone(server), line, round_trip))
    }

    /// Connects to the first address of a server that accepts.
    async fn dial(&self, server: &Server) -> Result<Line> {
        let dialing = server.addresses().await?.into_iter();
        let first = select_ok(dialing.map(|address| Box::pin(self.dial_at(server, address)))).await?;
        Ok(first.0)
    }

    async fn dial_at(&self, server: &Server, address: Option<SocketAddr>) -> Result<Line> {
        let broken = Arc::new(Notify::new());
        let sink = PushSink::new(&self.receiver, &broken, self.discovery.owner());
        // This module has its own timeouts, which also work under executors other than tokio's.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(pipeline::MAX_WRITES)
            .set_push_sender(sink);
        if let Some(address) = address {
            config = config.set_dns_resolver(Only(address));
        }
        let connected = server.client.get_multiplexed_async_connection_with_config(&config).await;
        let multiplexed = connected.map_err(|error| handshake::not_connected(server, &error))?;
        Ok(Line { multiplexed, broken, address })
    }

    fn connection(
        &self,
        server: Arc<Server>,
        Line { multiplexed, broken, address }: Line,
        round_trip: Duration,
    ) -> Arc<Connection> {
        let for_replicas = self.replicas.map_or(Duration::ZERO, |replicas| replicas.timeout);
        let silence_limit = self.command_timeout.min(round_trip * 2 + for_replicas);
        let by_slot = self.discovery.owner().is_some();
        let (pipeline, writing) = Pipeline::new(multiplexed, Means { by_slot, replicas: self.replicas });
        // The writer runs on the runtime that drives the connection.
        tokio::spawn(writing);
        let (since, local) = (Timestamp::now(), PerRuntime::default());
        Arc::new(Connection { server, address, pipeline, broken, since, silence_limit, local })
    }
}
