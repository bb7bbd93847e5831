//! The ways to lock, each as its documentation shows it, renewal and the check for a loss included.

use super::{
    Orders,
    log::Log,
    v3lock::{Lease, LeaseGrant, Lock, Locked, Unlock, Unlocked, call, keep_alive},
};
use locker::Locker;
use mysql_async::{Conn, Opts, prelude::Queryable};
use rslock::LockManager;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio_postgres::{Client, NoTls};
use tonic::transport::Channel;

const NAME: &str = "hot";

/// A way to lock. Its clones share connections.
#[derive(Clone)]
pub(crate) enum Peer {
    Locker(Locker, Duration),
    Tokio(Arc<tokio::sync::Mutex<()>>),
    Rslock(LockManager, Duration),
    Advisory { url: String, session: Option<Arc<Client>> },
    GetLock { url: String, session: Option<Arc<tokio::sync::Mutex<Conn>>> },
    V3Lock { channel: Channel, ttl: Duration, session: Option<Session> },
}

impl Peer {
    pub(crate) async fn connect(name: &str, orders: &Orders) -> Self {
        let url = orders.url.clone();
        match name {
            "locker" => Self::Locker(Locker::connect(&url).await.expect("a store"), orders.lease),
            "tokio" => Self::Tokio(Arc::default()),
            "rslock" => Self::Rslock(LockManager::new(vec![url]), orders.lease),
            "advisory" => Self::Advisory { url, session: None },
            "get-lock" => Self::GetLock { url: format!("{url}?prefer_socket=false"), session: None },
            "v3lock" => {
                let endpoint = Channel::from_shared(url).expect("an address");
                Self::V3Lock { channel: endpoint.connect_lazy(), ttl: orders.lease, session: None }
            }
            _ => panic!("there is no peer {name}"),
        }
    }

    /// Takes the lock, works, and releases it.
    pub(crate) async fn turn(&mut self, log: &mut Log) -> Result<(), String> {
        match self {
            Self::Locker(locker, lease) => {
                let guard = locker.lock(NAME).lease(*lease).acquire().await.map_err(text)?;
                log.section(Some(guard.fence().into()), || guard.is_held()).await;
                guard.release().await.map_err(text)
            }
            Self::Tokio(mutex) => {
                let _guard = mutex.lock().await;
                log.section(None, || true).await;
                Ok(())
            }
            Self::Rslock(manager, lease) => {
                // If a renewal fails, it drops the routine.
                let used = manager.using(NAME.as_bytes(), *lease, async || log.section(None, || true).await);
                let used = used.await;
                used.map_err(|error| {
                    log.write("lost", "");
                    text(error)
                })
            }
            Self::Advisory { url, session } => {
                let client = match session.take() {
                    Some(client) => client,
                    None => Arc::new(connect(url).await?),
                };
                locked_by_session(&client, log).await?;
                *session = Some(client);
                Ok(())
            }
            Self::GetLock { url, session } => {
                let conn = match session.take() {
                    Some(conn) => conn,
                    None => Arc::new(tokio::sync::Mutex::new(opened(url).await?)),
                };
                locked_by_connection(&mut *conn.lock().await, log).await?;
                *session = Some(conn);
                Ok(())
            }
            Self::V3Lock { channel, ttl, session } => {
                let own = match session.take().filter(Session::is_alive) {
                    Some(own) => own,
                    None => Session::open(channel, *ttl).await?,
                };
                own.turn(channel, log).await?;
                *session = Some(own);
                Ok(())
            }
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn connect(url: &str) -> Result<Client, String> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(text)?;
    tokio::spawn(connection);
    Ok(client)
}

async fn locked_by_session(client: &Client, log: &mut Log) -> Result<(), String> {
    client.query_one("SELECT pg_advisory_lock(1)", &[]).await.map_err(text)?;
    log.section(None, || !client.is_closed()).await;
    client.query_one("SELECT pg_advisory_unlock(1)", &[]).await.map_err(text)?;
    Ok(())
}

async fn opened(url: &str) -> Result<Conn, String> {
    Conn::new(Opts::from_url(url).map_err(text)?).await.map_err(text)
}

/// Nothing tells the holder of a loss before its next statement.
async fn locked_by_connection(conn: &mut Conn, log: &mut Log) -> Result<(), String> {
    let granted: Option<Option<i64>> =
        conn.query_first("SELECT GET_LOCK('hot', 86400)").await.map_err(text)?;
    if granted.flatten() != Some(1) {
        return Err("GET_LOCK has failed".into());
    }
    log.section(None, || true).await;
    conn.query_drop("SELECT RELEASE_LOCK('hot')").await.map_err(text)
}

/// A lease of etcd that is renewed every third of its time, as the sessions of the official client in Go are.
#[derive(Clone)]
pub(crate) struct Session {
    lease: i64,
    /// By its last renewal, counted from before the request.
    end: Arc<Mutex<Instant>>,
    _renewal: Arc<tokio::task::JoinSet<()>>,
}

impl Session {
    async fn open(channel: &Channel, ttl: Duration) -> Result<Self, String> {
        let sent = Instant::now();
        let seconds = ttl.as_secs().try_into().map_err(text)?;
        let grant = LeaseGrant { ttl: seconds, id: 0 };
        let lease: Lease = call(channel, "/etcdserverpb.Lease/LeaseGrant", grant).await.map_err(text)?;
        let end = Arc::new(Mutex::new(sent + ttl));
        let mut renewal = tokio::task::JoinSet::new();
        renewal.spawn(renew(channel.clone(), lease.id, ttl, Arc::clone(&end)));
        Ok(Self { lease: lease.id, end, _renewal: Arc::new(renewal) })
    }

    fn is_alive(&self) -> bool {
        Instant::now() < *self.end.lock().expect("no panic")
    }

    async fn turn(&self, channel: &Channel, log: &mut Log) -> Result<(), String> {
        let lock = Lock { name: NAME.into(), lease: self.lease };
        let locked: Locked = call(channel, "/v3lockpb.Lock/Lock", lock).await.map_err(text)?;
        let fence = locked.header.map(|header| header.revision.into());
        log.section(fence, || self.is_alive()).await;
        let unlock = Unlock { key: locked.key };
        let Unlocked {} = call(channel, "/v3lockpb.Lock/Unlock", unlock).await.map_err(text)?;
        Ok(())
    }
}

async fn renew(channel: Channel, lease: i64, ttl: Duration, end: Arc<Mutex<Instant>>) {
    loop {
        tokio::time::sleep(ttl / 3).await;
        let sent = Instant::now();
        match tokio::time::timeout(ttl / 3, keep_alive(&channel, lease)).await {
            Ok(Ok(kept)) if kept.ttl > 0 => *end.lock().expect("no panic") = sent + ttl,
            // The lease is over on the server.
            Ok(Ok(_)) => return *end.lock().expect("no panic") = sent,
            Ok(Err(_)) | Err(_) => {}
        }
    }
}
