//! A server, connections of callers, and what the tests ask them.

use locker::{Guard, Locker};
use locker_harness::{PostgresServer, until};
use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_postgres::{Client, Error, NoTls};

/// A later holder has recorded its fence.
pub(crate) const STALE: &str = "LK001";
/// The hold is not in force.
pub(crate) const NOT_HELD: &str = "LK002";

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A server that has the tables and functions of the store. Tests that run at the same time share it.
pub(crate) struct Database {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) locker: Locker,
}

impl Database {
    /// Returns a server that tests share which run at the same time.
    pub(crate) async fn open() -> Option<Self> {
        static SERVER: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        let server = {
            let mut shared = SERVER.lock().expect("no other test failed to start it");
            if let Some(server) = shared.upgrade() {
                server
            } else {
                let server = Arc::new(start()?);
                *shared = Arc::downgrade(&server);
                server
            }
        };
        Some(Self::on(server).await)
    }

    /// Starts a server that no other test uses.
    pub(crate) async fn own() -> Option<Self> {
        Some(Self::on(Arc::new(start()?)).await)
    }

    async fn on(server: Arc<PostgresServer>) -> Self {
        let locker = Locker::connect(&server.url()).await.expect("a connection to the test's server");
        Self { server, locker }
    }

    /// Opens a connection of a caller.
    pub(crate) async fn client(&self) -> Caller {
        let (client, connection) = tokio_postgres::connect(&self.server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let pid = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        Caller { client, pid }
    }

    /// Waits until a connection waits for a row.
    pub(crate) async fn blocked(&self, observer: &Caller, pid: i32) {
        until("a transaction that waits", async || is_blocked(observer, pid).await).await;
    }

    /// The fences that have written under this name, in the order in which they have.
    pub(crate) fn effects(&self, name: &str) -> String {
        self.server.psql(&format!(
            "SELECT coalesce(string_agg(fence::text, ',' ORDER BY at), '') FROM effects WHERE name = '{name}'"
        ))
    }
}

fn start() -> Option<PostgresServer> {
    let server = PostgresServer::start()?;
    server.psql("CREATE TABLE effects (name text, fence bigint, at serial)");
    Some(server)
}

pub(crate) async fn is_blocked(observer: &Caller, pid: i32) -> bool {
    let sql = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1";
    let rows = observer.query(sql, &[&pid]).await.unwrap();
    rows.first().and_then(|row| row.get::<_, Option<bool>>(0)) == Some(true)
}

/// A connection of a caller.
pub(crate) struct Caller {
    client: Client,
    pub(crate) pid: i32,
}

impl Deref for Caller {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Caller {
    /// Runs `locker_fence` as a caller without a guard would.
    pub(crate) async fn fence(&self, name: &str, fence: i64) -> Result<(), String> {
        code(self.execute("SELECT locker_fence($1, $2)", &[&name, &fence]).await)
    }

    pub(crate) async fn held(&self, key: &str, fence: i64) -> Result<(), String> {
        code(self.execute("SELECT locker_held($1, $2)", &[&key, &fence]).await)
    }

    /// Runs one of the statements of a guard.
    pub(crate) async fn check(&self, (statement, key, fence): (&str, &str, i64)) -> Result<(), String> {
        code(self.execute(statement, &[&key, &fence]).await)
    }

    pub(crate) async fn write(&self, name: &str, fence: i64) -> Result<(), String> {
        code(self.execute("INSERT INTO effects VALUES ($1, $2)", &[&name, &fence]).await)
    }

    pub(crate) async fn run(&self, sql: &str) -> Result<(), String> {
        code(self.batch_execute(sql).await)
    }
}

/// Reduces an error to its SQLSTATE.
pub(crate) fn code<T>(result: Result<T, Error>) -> Result<(), String> {
    let code = |error: Error| {
        error.as_db_error().map_or_else(|| error.to_string(), |refusal| refusal.code().code().to_owned())
    };
    result.map(drop).map_err(code)
}

pub(crate) fn refused(code: &str) -> Result<(), String> {
    Err(code.to_owned())
}

/// Acquires a lock that is not renewed.
pub(crate) async fn lock(locker: &Locker, name: &str, lease: Duration) -> Guard {
    locker.lock(name).lease(lease).renew(false).timeout(MINUTE).acquire().await.unwrap()
}

/// A name that no other test uses.
pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test {} {}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
