//! One connection to the server.

use super::{
    answers::{Answer, Answers, value},
    errors,
    url::Target,
};
use locker_cas::served::{CONNECT_LIMIT, first_of};
use locker_core::{
    background,
    error::{Error, ErrorKind, Result},
    store::url::place,
};
use mysql_async::{Conn, DriverError, Opts, prelude::Queryable};
use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::sync::{Mutex, watch};

/// An open connection. It ends when this is dropped.
pub(super) struct Session {
    conn: Mutex<Conn>,
    /// The number of the connection at the server.
    pub(super) id: u64,
    of: Use,
    has_failed: AtomicBool,
    /// Changes when another connection of the store has ended: this one may have, too.
    losses: watch::Receiver<u64>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// Statements of callers, which may take this long. It may have nothing to do for long.
    Lane(Duration),
    /// The wait for messages, or for what another connection waits.
    Listening,
    /// The look through all values.
    Sweep,
}

impl Use {
    /// Returns for how many seconds the server keeps a connection on which nothing is said.
    fn idle(self) -> u32 {
        match self {
            Self::Lane(_) => 86_400,
            Self::Listening | Self::Sweep => 15,
        }
    }

    /// Returns for how many seconds a statement waits for a table that another one makes.
    fn patience(self) -> u32 {
        match self {
            Self::Lane(_) | Self::Sweep => 1,
            Self::Listening => 4,
        }
    }

    /// Returns how long an answer may take. A server whose statement was killed between two of a packet never answers,
    /// and keeps what the first has locked until the connection ends.
    fn limit(self) -> Duration {
        match self {
            // After its lane has given it up, and before the callers ask again.
            Self::Lane(limit) => limit * 11 / 12,
            Self::Listening => Duration::from_secs(10),
            Self::Sweep => Duration::from_secs(120),
        }
    }
}

impl Session {
    /// Connects to the first host that takes writes.
    pub(super) async fn open(target: &Target, of: Use, mut losses: watch::Receiver<u64>) -> Result<Self> {
        losses.mark_unchanged();
        let connect = |at: usize| connect(&target.hosts[at], of);
        let (conn, id) = tokio::select! {
            biased;
            connected = first_of(target.hosts.len(), connect) => connected?,
            () = background::sleep(CONNECT_LIMIT) => return Err(Error::new(
                ErrorKind::Unavailable,
                format!("cannot connect to {}: nothing heard within {CONNECT_LIMIT:?}", target.address),
            )),
        };
        Ok(Self { conn: Mutex::new(conn), id, of, has_failed: AtomicBool::new(false), losses })
    }

    /// Runs statements, each after the one before has succeeded.
    ///
    /// If it is dropped before it returns, nothing else can be run.
    pub(super) async fn run(&self, statements: &[String]) -> Answers {
        let mut conn = self.conn.lock().await;
        // A future that is dropped leaves answers behind.
        self.has_failed.store(true, Ordering::Release);
        let late = || Answers { error: Some(DriverError::ConnectionClosed.into()), ..Answers::default() };
        let answers = tokio::select! {
            biased;
            answers = run(&mut conn, statements) => answers,
            () = background::sleep(self.of.limit()) => late(),
        };
        if !answers.error.as_ref().is_some_and(mysql_async::Error::is_fatal) {
            self.has_failed.store(false, Ordering::Release);
        }
        answers
    }

    /// Runs one statement.
    pub(super) async fn one(&self, statement: String) -> Result<Answer, mysql_async::Error> {
        let mut answers = self.run(&[statement]).await;
        match (answers.error, answers.done.pop()) {
            (None, Some(answer)) => Ok(answer),
            (error, _) => Err(error.unwrap_or(DriverError::ConnectionClosed.into())),
        }
    }

    /// Returns whether the connection has ended, or may have.
    pub(super) fn is_closed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire) || self.losses.has_changed().unwrap_or(true)
    }

    /// Waits until the connection may have ended.
    pub(super) async fn ended(&self) {
        // An error says that the store has ended.
        let _ = self.losses.clone().changed().await;
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}

async fn run(conn: &mut Conn, statements: &[String]) -> Answers {
    let mut answers = Answers::default();
    let mut result = match conn.query_iter(statements.join(";\n")).await {
        Ok(result) => result,
        Err(error) => return Answers { error: Some(error), ..answers },
    };
    for _ in statements {
        let affected = result.affected_rows();
        let insert_id = result.last_insert_id().and_then(|id| i64::try_from(id).ok()).unwrap_or(0);
        let mut rows = Vec::new();
        let failed = loop {
            match result.next().await {
                Ok(Some(row)) => rows.push(row),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        // The library keeps the error of a statement until it is asked for the rows of that.
        if failed.is_none() {
            answers.done.push(Answer { affected, insert_id, rows });
        }
        if failed.is_some() {
            answers.error = failed;
            break;
        }
    }
    answers
}

/// Connects to a host that takes writes. Returns the connection and its number.
async fn connect(host: &Opts, of: Use) -> Result<(Conn, u64)> {
    let place = place(host.ip_or_hostname(), host.tcp_port());
    let address = &format!("mysql://{place}/{}", host.db_name().unwrap_or_default());
    let failed = |error| errors::of_connecting(error, address);
    let mut conn = Conn::new(host.clone()).await.map_err(failed)?;
    let set_up = run(&mut conn, &set_up(of)).await.last().map_err(failed)?;
    let Some(row) = set_up.first() else { return Err(errors::lost("a connection without a number")) };
    let takes_writes =
        |column: usize| value::<String>(row, column).is_none_or(|text| matches!(&*text, "0" | "OFF"));
    if !takes_writes(1) || !takes_writes(2) {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!("{address} takes no writes: this is a replica, or read_only is set"),
        ));
    }
    Ok((conn, value(row, 0).unwrap_or(0)))
}

/// What an administrator may have set for all connections, and would break the statements.
fn set_up(of: Use) -> [String; 4] {
    let (seconds, patience) = (of.idle(), of.patience());
    [
        format!(
            "SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION innodb_lock_wait_timeout=1, \
             SESSION lock_wait_timeout={patience}, SESSION autocommit=1, SESSION completion_type='NO_CHAIN', \
             SESSION sql_safe_updates=0, SESSION sql_select_limit=18446744073709551615, SESSION wait_timeout={seconds}"
        ),
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".into(),
        "SET SESSION TRANSACTION READ WRITE".into(),
        "SELECT CONNECTION_ID(), @@GLOBAL.read_only, @@GLOBAL.innodb_read_only".into(),
    ]
}
