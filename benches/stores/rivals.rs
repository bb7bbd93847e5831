//! The ways to lock, each with the defaults that an application gets.

use super::v3lock::{Lease, LeaseGrant, Lock, Locked, Unlock, Unlocked, call};
use locker::Locker;
use mysql_async::{Conn, Opts, prelude::Queryable};
use std::{
    fs::File,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tokio::{runtime::Runtime, sync::Mutex};
use tokio_postgres::{Client, NoTls, Statement};
use tonic::transport::Channel;

const ANSWER: &str = "an answer";

/// The work of one task.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A way to lock.
pub(crate) enum Rival {
    Locker(Locker),
    /// A connection for each task, with a statement that takes and one that gives back.
    Sessions(Vec<Arc<Session>>),
    /// The same on MySQL: `?` stands for the name.
    Mysql(Vec<Arc<Mutex<Conn>>>, [&'static str; 2]),
    /// A lease for each task: two locks under one lease are one.
    V3Lock(Channel, Vec<i64>),
    /// A file for each name, opened for each lock.
    Flock(PathBuf),
}

/// A connection to PostgreSQL with its statements.
pub(crate) struct Session {
    client: Client,
    statements: [Statement; 2],
}

impl Rival {
    pub(crate) fn locker(runtime: &Runtime, url: &str) -> Self {
        Self::Locker(runtime.block_on(Locker::connect(url)).expect("a connection"))
    }

    /// A session's lock keeps the session.
    pub(crate) fn advisory(runtime: &Runtime, url: &str, tasks: u32) -> Self {
        let statements = ["SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"];
        Self::sessions(runtime, url, tasks, statements)
    }

    /// No lock, but what each lock costs that is kept in a row: a change that is on the disk before it counts, and one
    /// that need not be. Each task has a row of its own.
    pub(crate) fn rows(runtime: &Runtime, url: &str, tasks: u32) -> Self {
        const CHANGE: &str = "UPDATE bare SET changes = changes + 1 WHERE name = $1";
        let soon = format!("{CHANGE} AND set_config('synchronous_commit', 'off', true) IS NOT NULL");
        let statements = [CHANGE, &soon].map(|change| format!("{change} RETURNING name"));
        Self::sessions(runtime, url, tasks, [&statements[0], &statements[1]])
    }

    fn sessions(runtime: &Runtime, url: &str, tasks: u32, statements: [&str; 2]) -> Self {
        let sessions = (0..tasks).map(|_| Arc::new(runtime.block_on(Session::new(url, statements))));
        Self::Sessions(sessions.collect())
    }

    /// A lock of a connection, which keeps the connection.
    pub(crate) fn get_lock(runtime: &Runtime, url: &str, tasks: u32) -> Self {
        Self::mysql(runtime, url, tasks, ["SELECT GET_LOCK('name ?',120)", "SELECT RELEASE_LOCK('name ?')"])
    }

    /// A transaction that keeps a row, and changes nothing.
    pub(crate) fn for_update(runtime: &Runtime, url: &str, tasks: u32) -> Self {
        let take = "BEGIN; SELECT name FROM rows_to_lock WHERE name=? FOR UPDATE";
        Self::mysql(runtime, url, tasks, [take, "COMMIT"])
    }

    fn mysql(runtime: &Runtime, url: &str, tasks: u32, statements: [&'static str; 2]) -> Self {
        let options = Opts::from_url(&format!("{url}?prefer_socket=false")).expect("a URL");
        let conn = || runtime.block_on(Conn::new(options.clone())).expect("a connection");
        Self::Mysql((0..tasks).map(|_| Arc::new(Mutex::new(conn()))).collect(), statements)
    }

    pub(crate) fn v3lock(runtime: &Runtime, url: &str, tasks: u32) -> Self {
        runtime.block_on(async {
            let endpoint = Channel::from_shared(url.to_owned()).expect("an address");
            let channel = endpoint.connect().await.expect("a connection");
            let mut leases = Vec::new();
            for _ in 0..tasks {
                let grant = LeaseGrant { ttl: 3_600, id: 0 };
                let granted: Lease =
                    call(&channel, "/etcdserverpb.Lease/LeaseGrant", grant).await.expect(ANSWER);
                leases.push(granted.id);
            }
            Self::V3Lock(channel, leases)
        })
    }

    pub(crate) fn flock(directory: &Path) -> Self {
        Self::Flock(directory.to_owned())
    }

    /// Returns a future that acquires and releases a name so many times.
    pub(crate) fn pairs(&self, task: u32, name: u32, times: u32) -> Work {
        match self {
            Self::Locker(locker) => {
                let request = locker.lock(&format!("name {name}")).timeout(Duration::from_secs(120));
                Box::pin(async move {
                    for _ in 0..times {
                        request
                            .clone()
                            .acquire()
                            .await
                            .expect("the lock")
                            .release()
                            .await
                            .expect("a release");
                    }
                })
            }
            Self::Sessions(sessions) => {
                let session = Arc::clone(&sessions[task as usize]);
                Box::pin(async move {
                    for _ in 0..times {
                        session.pair(i64::from(name)).await;
                    }
                })
            }
            Self::Mysql(conns, statements) => {
                let conn = Arc::clone(&conns[task as usize]);
                let statements = statements.map(|statement| statement.replace('?', &name.to_string()));
                Box::pin(async move {
                    let mut conn = conn.lock().await;
                    for _ in 0..times {
                        for statement in &statements {
                            let result = conn.query_iter(statement).await.expect(ANSWER);
                            result.drop_result().await.expect(ANSWER);
                        }
                    }
                })
            }
            Self::V3Lock(channel, leases) => {
                let (channel, lease) = (channel.clone(), leases[task as usize]);
                Box::pin(async move {
                    for _ in 0..times {
                        let lock = Lock { name: format!("name {name}").into_bytes(), lease };
                        let locked: Locked = call(&channel, "/v3lockpb.Lock/Lock", lock).await.expect(ANSWER);
                        let unlock = Unlock { key: locked.key };
                        let Unlocked {} =
                            call(&channel, "/v3lockpb.Lock/Unlock", unlock).await.expect(ANSWER);
                    }
                })
            }
            Self::Flock(directory) => {
                let path = directory.join(format!("name {name}"));
                Box::pin(async move {
                    // What `flock` blocks is a thread. An application hands that to the pool for blocking calls.
                    let work = tokio::task::spawn_blocking(move || {
                        for _ in 0..times {
                            let file = File::create(&path).expect("a file");
                            file.lock().expect("the lock");
                            file.unlock().expect("a release");
                        }
                    });
                    work.await.expect("a thread");
                })
            }
        }
    }
}

impl Session {
    async fn new(url: &str, [take, give]: [&str; 2]) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let prepare = async |sql| client.prepare(sql).await.expect("a statement");
        let statements = [prepare(take).await, prepare(give).await];
        Self { client, statements }
    }

    async fn pair(&self, name: i64) {
        for statement in &self.statements {
            self.client.query_one(statement, &[&name]).await.expect("the lock, and its release");
        }
    }
}
