//! The row of `locker_boot`, which marks an epoch of a server: it is gone after a start of that server. `locker_meta`
//! says which server has begun the last one.

use super::{
    answers::value,
    errors,
    facts::{self, FLUSH, Facts},
    session::Session,
    sql,
};
use locker_core::{background, error::Result};

/// Makes the row unless it is there, and says in the tables if a crash of the server may lose what it answers. Several
/// processes may try at once: the epoch may then begin twice, and its quiet time lasts a little longer.
pub(super) async fn ensure(session: &Session, facts: &Facts) -> Result<()> {
    let failed = |error: mysql_async::Error| errors::of_statement(&error).error;
    if facts.is_lossy {
        say_so(session).await?;
    }
    let rows = session.one(facts.marks()).await.map_err(failed)?.rows;
    let is_there = |column| rows.first().and_then(|row| value::<i64>(row, column)) == Some(1);
    if is_there(0) {
        return Ok(());
    }
    // An epoch without its row of `locker_meta` is none: processes that are there learn of a quiet time with the next.
    // That of another server ends there, too.
    let unmark = is_there(1).then(|| sql::UNMARK_EPOCH.into());
    // The quiet time is committed before the epoch is marked.
    let statements: Vec<_> = unmark.into_iter().chain([facts.begin_epoch(), facts.mark_epoch()]).collect();
    session.run(&statements).await.last().map(drop).map_err(failed)
}

/// Says that a crash may lose writes, and waits until it cannot lose that, or the longest hold: 2 stands for the time
/// until then.
async fn say_so(session: &Session) -> Result<()> {
    let run = async |sql| session.one(sql).await.map_err(|error| errors::of_statement(&error).error);
    run("UPDATE locker_meta SET quick=2 WHERE quick=0".into()).await?;
    let waits = run(format!("SELECT longest,{FLUSH} FROM locker_meta WHERE quick=2")).await?.rows;
    let Some(row) = waits.first() else { return Ok(()) };
    background::sleep(facts::written_after(value(row, 1))?).await;
    run(sql::written(value(row, 0).unwrap_or(0))).await.map(drop)
}

#[cfg(test)]
mod model;
