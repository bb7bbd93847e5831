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
    let rows = session.one("SELECT server FROM locker_boot".into()).await.map_err(failed)?.rows;
    let server = rows.first().and_then(|row| value::<Vec<u8>>(row, 0)).map(|server| literal(&server));
    if facts.is_lossy {
        let marked =
            session.one("UPDATE locker_meta SET quick=1 WHERE quick=0".into()).await.map_err(failed)?;
        if marked.affected > 0 {
            background::sleep(WRITTEN).await;
        }
    }
    let mut statements = Vec::new();
    if server.as_ref() != Some(&facts.this_server) {
        // The quiet time is committed before the row is there.
        statements.push(facts.begin_epoch());
        statements.extend(server.map(|_| sql::UNMARK_EPOCH.into()));
        statements.push(facts.mark_epoch());
    }
    if statements.is_empty() {
        return Ok(());
    }
    session.run(&statements).await.last().map(drop).map_err(failed)
}
