//! `locker store`.

use super::store_option::{fail, open};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::cli::SqlKind;
use crate::cli::{Check, StoreCommand};
use locker_runtime::{Error, Locker, stores::without_login};
use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

/// How many calls of a kind are measured.
const CALLS: usize = 9;

/// Runs a command about a store.
pub(super) async fn store(command: StoreCommand) -> ExitCode {
    match command {
        StoreCommand::Check(options) => match check(&options).await {
            Ok(text) => print(&text),
            Err(error) => fail(&error).into(),
        },
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        StoreCommand::Sql(options) => print(&sql(&options)),
    }
}

fn print(text: &str) -> ExitCode {
    let mut output = std::io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn check(options: &Check) -> Result<String, Error> {
    let started = Instant::now();
    let locker = open(&options.store).await?;
    let opened = started.elapsed();
    let (mut pings, mut locks) = (Vec::new(), Vec::new());
    // A user who may read may not be one who may write.
    let name = format!("locker store check {}", uuid::Uuid::new_v4());
    for _ in 0..CALLS {
        pings.push(timed(locker.admin().ping()).await?);
        locks.push(timed(locked(&locker, &name)).await?);
    }
    locker.settled().await;
    let url = options.store.store.as_deref().unwrap_or_default();
    Ok(format!(
        "store             {}\nopened in         {opened:.1?}\nround trip        {:.1?}\nlock and release  {:.1?}\n",
        without_login(url),
        median(pings),
        median(locks)
    ))
}

async fn locked(locker: &Locker, name: &str) -> Result<(), Error> {
    locker.lock(name).acquire().await?.release().await
}

async fn timed(call: impl Future<Output = Result<(), Error>>) -> Result<Duration, Error> {
    let started = Instant::now();
    call.await.map(|()| started.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn sql(options: &crate::cli::Sql) -> String {
    match options.kind {
        #[cfg(feature = "postgres")]
        SqlKind::Postgres => sql_of_postgres(options),
        #[cfg(feature = "mysql")]
        SqlKind::Mysql => sql_of_mysql(options),
    }
}

#[cfg(feature = "postgres")]
fn sql_of_postgres(options: &crate::cli::Sql) -> String {
    use locker_runtime::postgres::{grants_sql, schema_sql};
    let schema = options.schema.as_deref().unwrap_or("public");
    let make = match schema {
        // Its owner may be someone else.
        "public" => String::new(),
        _ => format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\";\n"),
    };
    let grants = options.grant_to.as_ref().map_or_else(String::new, |role| grants_sql(schema, role));
    format!("BEGIN;\n{make}{}{grants}COMMIT;\n", schema_sql(schema))
}

/// Its statements about tables are no part of a transaction.
#[cfg(feature = "mysql")]
fn sql_of_mysql(options: &crate::cli::Sql) -> String {
    use locker_runtime::mysql::{grants_sql, schema_sql};
    let (database, user) = (options.schema.as_deref(), options.grant_to.as_deref());
    let made = |name: &str| format!("CREATE DATABASE IF NOT EXISTS `{name}`;\nUSE `{name}`;\n");
    let database = database.map_or_else(String::new, made);
    format!("{database}{}{}", schema_sql(), user.map_or_else(String::new, grants_sql))
}
