//! The connections of this process to a server.
//!
//! The background thread drives the one that messages come in on, and commands go out. Beside it, each runtime that
//! calls are made in has one for commands alone. A message and an answer may overtake each other.

use super::{
    errors,
    outbox::{self, Content, Outbox},
    push_receiver::{Mail, Outlet},
    script::Invocation,
    startup,
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
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// What is needed to connect again and again.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) client: Client,
    /// What may be shown of the address.
    pub(super) address: String,
    pub(super) channel: String,
    /// How long connecting may take.
    pub(super) patience: Duration,
    /// The same where there has been a connection before: whoever holds something cannot wait long.
    pub(super) haste: Duration,
    /// How long one answer is waited for.
    pub(super) command_timeout: Duration,
    pub(super) checks: startup::Checks,
    pub(super) mail: Arc<Mail>,
}

/// Where the connection stands.
#[derive(Clone, Debug)]
pub(super) enum Status {
    Connecting,
    Up(Arc<Connection>),
    Down(Error),
}

/// What the server has answered, if an answer came in time.
pub(super) type Answered = Result<RedisResult<Value>>;

/// A connection.
pub(super) struct Connection {
    outbox: Outbox,
    broken: Arc<Notify>,
    since: Timestamp,
    /// Two round trips, as connecting has shown. Silence that lasts for less says nothing.
    patience: Duration,
    /// Those of callers' runtimes, which end with it: they may lead to a server that is no master any more.
    near: PerRuntime<Connection>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// A script, with others in one command where that can be, answered by that time.
    pub(super) fn run(&self, invocation: &Arc<Invocation>, by: Timestamp) -> impl Future<Output = Answered> {
        self.send(Content::Script(Arc::clone(invocation), invocation.batch()), by)
    }

    /// A script with its whole text, for a server that does not know it.
    pub(super) fn run_in_full(
        &self,
        invocation: &Arc<Invocation>,
        by: Timestamp,
    ) -> impl Future<Output = Answered> {
        self.send(Content::InFull(Arc::clone(invocation)), by)
    }

    /// One command, answered by that time.
    pub(super) fn call(&self, command: Cmd, by: Timestamp) -> impl Future<Output = Answered> {
        self.send(Content::Command(command), by)
    }

    async fn send(&self, content: Content, by: Timestamp) -> Answered {
        let sent = Timestamp::now();
        tokio::select! {
            biased;
            answer = self.outbox.send(content) => {
                if answer.as_ref().is_err_and(|error| self.is_spoilt_by(error)) {
                    self.broken.notify_one();
                }
                Ok(answer)
            }
            () = background::sleep_from(sent, by) => {
                let limit = by.since(sent);
                if limit >= self.patience && !self.outbox.has_heard_since(sent) {
                    self.broken.notify_one();
                }
                Err(errors::lost(&format!("waited {limit:?}")))
            }
        }
    }

    /// Whether another connection is needed: this one is broken, or leads to a master no more. The address may lead to
    /// the new one, though not at once.
    fn is_spoilt_by(&self, error: &RedisError) -> bool {
        let is_old = || Timestamp::now() > self.since + BETWEEN_MASTERS;
        error.is_unrecoverable_error() || (errors::is_of_a_replica(error) && is_old())
    }
}

/// How long a connection is kept at least that leads to a replica.
const BETWEEN_MASTERS: Duration = Duration::from_secs(1);

/// The present connection, for whoever has something to send.
#[derive(Clone, Debug)]
pub(super) struct Link {
    status: watch::Receiver<Status>,
    connector: Arc<Connector>,
}

impl Link {
    /// Keeps a connection up until the last link is dropped.
    pub(super) fn open(connector: Connector) -> Self {
        let (sender, status) = watch::channel(Status::Connecting);
        let connector = Arc::new(connector);
        background::spawn(keep(Arc::clone(&connector), sender));
        Self { status, connector }
    }

    /// The connection that the caller's own runtime drives, if there is one; else as [`up`](Self::up).
    pub(super) async fn near(&self, limit: Duration) -> Result<Arc<Connection>> {
        let connection = self.up(limit).await?;
        let near = connection.near.get(|| Arc::clone(&self.connector).connect_near()).await;
        Ok(near.unwrap_or(connection))
    }

    /// The connection, waited for up to `limit`. Whatever the error, nothing was sent.
    pub(super) async fn up(&self, limit: Duration) -> Result<Arc<Connection>> {
        match &*self.status.borrow() {
            Status::Up(connection) => return Ok(Arc::clone(connection)),
            Status::Down(error) if !error.is_temporary() => return Err(error.clone().unsent()),
            _ => {}
        }
        Box::pin(self.wait(limit)).await
    }

    /// Why there is no connection, if there is none.
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

    /// How long an answer may take, also where this machine or that one is busy; nothing where there is no connection.
    pub(super) fn expected_rtt(&self) -> Duration {
        const BUSY: Duration = Duration::from_millis(100);
        match &*self.status.borrow() {
            Status::Up(connection) => connection.patience.max(BUSY),
            _ => Duration::ZERO,
        }
    }

    async fn wait(&self, limit: Duration) -> Result<Arc<Connection>> {
        let mut status = self.status.clone();
        tokio::select! {
            biased;
            () = settled(&mut status) => {}
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

/// Waits for the end of the present try to connect.
async fn settled(status: &mut watch::Receiver<Status>) {
    if matches!(*status.borrow_and_update(), Status::Up(_)) {
        return;
    }
    while status.changed().await.is_ok() {
        if !matches!(*status.borrow_and_update(), Status::Connecting) {
            return;
        }
    }
}

/// Connects, and connects again whenever the connection breaks.
async fn keep(connector: Arc<Connector>, status: watch::Sender<Status>) {
    let (mut backoff, mut again) = (Backoff::default(), false);
    while !status.is_closed() {
        match connector.connect(again).await {
            Ok(connection) => {
                (backoff, again) = (Backoff::default(), true);
                tell(&status, Status::Up(Arc::clone(&connection)));
                connector.mail.resync();
                tokio::select! {
                    () = connection.broken.notified() => {}
                    () = status.closed() => {}
                }
                tell(&status, Status::Connecting);
            }
            Err(error) => {
                tell(&status, Status::Down(error));
                tokio::select! {
                    () = background::sleep(backoff.next_delay()) => {}
                    () = status.closed() => {}
                }
            }
        }
    }
}

fn tell(status: &watch::Sender<Status>, news: Status) {
    panics::contain(|| status.send_replace(news));
}

impl Connector {
    /// Connects; `again` tells that there has been a connection before.
    async fn connect(&self, again: bool) -> Result<Arc<Connection>> {
        let limit = if again { self.haste } else { self.patience };
        self.within(limit, self.set_up()).await
    }

    /// Connects the runtime it is called in, for as long as the future lasts that is returned.
    async fn connect_near(self: Arc<Self>) -> Option<(Arc<Connection>, impl Future<Output = ()>)> {
        let (multiplexed, broken, round_trip) = self.within(self.haste, self.dial()).await.ok()?;
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
        let loaded = startup::load_scripts(&mut multiplexed).await?;
        self.mail.knows_scripts.store(loaded, Ordering::Release);
        let subscribing = Timestamp::now();
        multiplexed.subscribe(&self.channel).await.map_err(|error| self.refused(&error))?;
        // The quicker of two: where a busy moment held one up, the other knows better.
        let round_trip = round_trip.min(Timestamp::now().since(subscribing));
        Ok(self.connection(multiplexed, broken, round_trip))
    }

    /// A connection to a master, what tells of its end, and how long a round trip took.
    async fn dial(&self) -> Result<(MultiplexedConnection, Arc<Notify>, Duration)> {
        let broken = Arc::new(Notify::new());
        let outlet = Outlet { mail: Arc::clone(&self.mail), broken: Arc::clone(&broken) };
        // Time-outs are kept here, by a clock that also works under executors other than tokio's.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(outbox::UNANSWERED)
            .set_push_sender(outlet);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut multiplexed = connected.map_err(|error| self.refused(&error))?;
        let greeting = Timestamp::now();
        startup::greet(&mut multiplexed).await?;
        Ok((multiplexed, broken, Timestamp::now().since(greeting)))
    }

    fn connection(
        &self,
        multiplexed: MultiplexedConnection,
        broken: Arc<Notify>,
        round_trip: Duration,
    ) -> Arc<Connection> {
        let patience = self.command_timeout.min(round_trip * 2);
        let (outbox, writing) = Outbox::new(multiplexed);
        // Where the connection is driven.
        tokio::spawn(writing);
        let (since, near) = (Timestamp::now(), PerRuntime::default());
        Arc::new(Connection { outbox, broken, since, patience, near })
    }

    fn refused(&self, error: &RedisError) -> Error {
        startup::explain(error).unwrap_or_else(|| self.failed(&error.to_string())).with_source(error.clone())
    }

    fn failed(&self, why: &str) -> Error {
        let hint = if self.address.starts_with("rediss:") { " (does this port speak TLS?)" } else { "" };
        Error::new(ErrorKind::Unavailable, format!("cannot connect to {}: {why}{hint}", self.address))
    }
}
