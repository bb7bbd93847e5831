//! The row of `locker_boot`, which marks an epoch: it is gone after a start of the server, and names another one after
//! a failover.

use super::{
    answers::{literal, value},
    errors,
    facts::{Facts, WRITTEN},
    session::Session,
    sql,
};
use locker_core::{background, error::Result};

/// Makes the row unless it is there, and says in the tables if a crash of the server may lose what it answers. Several
/// processes may try at once: the epoch may then begin twice, and its quiet time lasts a little longer.
pub(super) async fn ensure(session: &Session, facts: &Facts) -> Result<()> {
    let failed = |error: mysql_async::Error| errors::of_statement(&error).error;
    if facts.is_lossy {
        say_so(session).await.map_err(failed)?;
    }
    let servers = "SELECT (SELECT server FROM locker_boot),(SELECT server FROM locker_meta)";
    let rows = session.one(servers.into()).await.map_err(failed)?.rows;
    let server = |column| rows.first().and_then(|row| value::<Vec<u8>>(row, column));
    let (marked, is_lost) =
        (server(0).map(|server| literal(&server)), server(1).is_some_and(|name| name.is_empty()));
    let mut statements = Vec::new();
    if is_lost {
        // Its row tells of a quiet time already. Processes that are there learn of that with the next epoch only.
        statements.extend([sql::UNMARK_EPOCH.into(), facts.begin_epoch(), facts.mark_epoch()]);
    } else if marked.as_ref() != Some(&facts.this_server) {
        // The quiet time is committed before the row is there.
        statements.push(facts.begin_epoch());
        statements.extend(marked.map(|_| sql::UNMARK_EPOCH.into()));
        statements.push(facts.mark_epoch());
    }
    if statements.is_empty() {
        return Ok(());
    }
    session.run(&statements).await.last().map(drop).map_err(failed)
}

/// Says that a crash may lose writes, and waits until it cannot lose that: 2 stands for the time until then.
async fn say_so(session: &Session) -> Result<(), mysql_async::Error> {
    session.one("UPDATE locker_meta SET quick=2 WHERE quick=0".into()).await?;
    let waits = session.one("SELECT 1 FROM locker_meta WHERE quick=2".into()).await?;
    if !waits.rows.is_empty() {
        background::sleep(WRITTEN).await;
        session.one("UPDATE locker_meta SET quick=1 WHERE quick=2".into()).await?;
    }
    Ok(())
}
