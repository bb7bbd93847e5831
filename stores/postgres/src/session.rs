//! One connection to the server.

use super::{errors, sql::Statement, url::Target};
use futures_util::{StreamExt, stream};
use locker_cas::served::{CONNECT_LIMIT, first_of};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    sync::{Mutex, lock},
};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{oneshot, watch},
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Row, Socket,
    config::Host,
    tls::{MakeTlsConnect, TlsConnect},
    types::{ToSql, Type},
};

/// What a connection does with notifications.
pub(super) type Notified = Box<dyn Fn(&str, &str) + Send>;

/// What a connection is for.
pub(super) enum Use {
    /// Statements of callers.
    Lane,
    /// Statements of the store, and messages.
    Own(Option<Notified>),
}

/// An open connection. It ends when this is dropped.
pub(super) struct Session {
    client: Client,
    prepared: Mutex<HashMap<usize, tokio_postgres::Statement>>,
    /// Whether statements have names on the server: not if a pool may be in between.
    named: Arc<AtomicBool>,
    /// The smoothed time from a statement to its answer.
    answer_time: Mutex<Option<Duration>>,
    ended: watch::Receiver<()>,
    _stop: oneshot::Sender<()>,
}

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

impl Session {
    /// Connects within [`CONNECT_LIMIT`].
    pub(super) async fn open(
        target: &Target,
        config: &Config,
        named: &Arc<AtomicBool>,
        of: Use,
    ) -> Result<Self> {
        tokio::select! {
            biased;
            session = Self::connect(target, config, named, of) => session,
            () = background::sleep(CONNECT_LIMIT) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("cannot connect to {}: nothing heard within {CONNECT_LIMIT:?}", target.address),
            )),
        }
    }

    async fn connect(target: &Target, config: &Config, named: &Arc<AtomicBool>, of: Use) -> Result<Self> {
        #[cfg(feature = "tls")]
        if let Some(connector) = &target.connector {
            return Self::connect_by(connector.clone(), target, config, named, of).await;
        }
        Self::connect_by(tokio_postgres::NoTls, target, config, named, of).await
    }

    async fn connect_by<T>(
        connector: T,
        target: &Target,
        config: &Config,
        named: &Arc<AtomicBool>,
        of: Use,
    ) -> Result<Self>
    where
        T: MakeTlsConnect<Socket, Stream: Send, TlsConnect: Send> + Clone + Send + 'static,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let connect = |at: usize| {
            let (host, connector) = (only(config, at), connector.clone());
            async move { host.connect(connector).await }
        };
        let connected = first_of(config.get_hosts().len(), connect).await;
        let (client, connection): (Client, Connection<Socket, T::Stream>) =
            connected.map_err(|error| errors::of_connecting(&error, &target.address).with_source(error))?;
        let ((stop, stopped), (end, ended)) = (oneshot::channel(), watch::channel(()));
        // Of a write, a cancellation would end its wait for a standby.
        let (notified, cancels) = match of {
            Use::Lane => (None, None),
            Use::Own(notified) => (notified, Some(client.cancel_token())),
        };
        background::spawn(async move {
            tokio::select! {
                () = drive(connection, notified) => return,
                () = abandoned(stopped) => {}
            }
            drop(end);
            // A server that waits for a lock does not notice that nobody waits for its answer.
            if let Some(cancels) = cancels {
                tokio::select! {
                    // It has ended by itself, or cannot be reached.
                    _ = cancels.cancel_query(connector) => {}
                    () = background::sleep(CONNECT_LIMIT) => {}
                }
            }
        });
        let (prepared, named) = (Mutex::default(), Arc::clone(named));
        Ok(Self { client, prepared, named, answer_time: Mutex::default(), ended, _stop: stop })
    }

    /// Returns whether the connection has ended: nothing can be sent.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Waits for the end of the connection.
    pub(super) async fn ended(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// Runs statements without parameters.
    pub(super) async fn run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(sql).await
    }

    /// Runs a transaction, from `BEGIN` to `COMMIT`.
    pub(super) async fn transact(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        let done = self.run(sql).await;
        if done.is_err() {
            // The first error says what is wrong. If this one fails, too, the connection has ended.
            let _ = self.run("ROLLBACK").await;
        }
        done
    }

    /// Runs a statement that is not kept.
    pub(super) async fn query_once(
        &self,
        sql: &str,
        parameters: &[(Parameter<'_>, Type)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.client.query_typed(sql, parameters).await
    }

    /// Runs a statement.
    pub(super) async fn query(
        &self,
        statement: &Statement,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if self.named.load(Ordering::Acquire) {
            match self.query_named(statement, parameters).await {
                Err(error) if errors::is_of_a_pool(&error) => {
                    self.named.store(false, Ordering::Release);
                    lock(&self.prepared).clear();
                }
                answer => return answer,
            }
        }
        let typed: Vec<_> = parameters.iter().copied().zip(statement.types.iter().cloned()).collect();
        self.client.query_typed(&statement.text, &typed).await
    }

    async fn query_named(
        &self,
        statement: &Statement,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let known = lock(&self.prepared).get(&statement.number).cloned();
        let prepared = if let Some(prepared) = known {
            prepared
        } else {
            let prepared = self.client.prepare_typed(&statement.text, &statement.types).await?;
            lock(&self.prepared).insert(statement.number, prepared.clone());
            prepared
        };
        let sent = Timestamp::now();
        let answer = self.client.query(&prepared, parameters).await;
        let took = Timestamp::now().since(sent);
        let mut answer_time = lock(&self.answer_time);
        *answer_time = Some(answer_time.map_or(took, |before| (before * 4 + took) / 5));
        drop(answer_time);
        answer
    }

    /// Returns how long the prepared statements take from here to the server and back, of late.
    pub(super) fn answer_time(&self) -> Option<Duration> {
        *lock(&self.answer_time)
    }
}

/// Waits until a connection is dropped, and a moment longer, in which it says goodbye.
async fn abandoned(stopped: oneshot::Receiver<()>) {
    drop(stopped.await);
    background::sleep(Duration::from_secs(1)).await;
}

/// Returns how to connect to one of the hosts alone.
fn only(config: &Config, at: usize) -> Config {
    let mut one = Config::new();
    match &config.get_hosts()[at] {
        Host::Tcp(host) => one.host(host),
        #[cfg(unix)]
        Host::Unix(path) => one.host_path(path),
    };
    config.get_ports().get(at).or(config.get_ports().first()).map(|port| one.port(*port));
    config.get_user().map(|user| one.user(user));
    config.get_password().map(|password| one.password(password));
    config.get_dbname().map(|database| one.dbname(database));
    config.get_application_name().map(|name| one.application_name(name));
    config.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    config.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
    one.keepalives_idle(config.get_keepalives_idle());
    one.ssl_mode(config.get_ssl_mode()).target_session_attrs(config.get_target_session_attrs());
    one
}

async fn drive<T: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<Socket, T>,
    notified: Option<Notified>,
) {
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    while let Some(Ok(message)) = messages.next().await {
        if let (AsyncMessage::Notification(notification), Some(notified)) = (message, &notified) {
            notified(notification.channel(), notification.payload());
        }
    }
}
